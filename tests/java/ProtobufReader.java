import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import com.google.protobuf.TextFormat;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/**
 * Reads values as Confluent's deserializer does: a zero, an id, message indexes, a message. The
 * argument is a directory: its file "7" is the set of descriptors of id 7, with that of the schema
 * last. Standard input: one value a line, in hexadecimal digits. Standard output, a line for each:
 * what protobuf-java writes for the message, how many unknown fields it had, and its text.
 */
public class ProtobufReader {
    public static void main(String[] arguments) throws Exception {
        Map<Integer, FileDescriptor> files = new HashMap<>();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            CodedInputStream in = CodedInputStream.newInstance(HexFormat.of().parseHex(line));
            if (in.readRawByte() != 0) {
                throw new IllegalArgumentException("no magic byte: " + line);
            }
            int id = Integer.reverseBytes(in.readFixed32());
            if (!files.containsKey(id)) {
                files.put(id, file(Files.readAllBytes(Path.of(arguments[0], String.valueOf(id)))));
            }
            DynamicMessage.Builder builder = DynamicMessage.newBuilder(type(files.get(id), in));
            DynamicMessage message = builder.mergeFrom(in).build();
            ByteArrayOutputStream bytes = new ByteArrayOutputStream();
            CodedOutputStream out = CodedOutputStream.newInstance(bytes);
            out.useDeterministicSerialization();
            message.writeTo(out);
            out.flush();
            System.out.println(HexFormat.of().formatHex(bytes.toByteArray()) + "\t" + unknown(message)
                + "\t" + TextFormat.printer().shortDebugString(message));
        }
    }

    private static FileDescriptor file(byte[] set) throws Exception {
        Map<String, FileDescriptor> built = new HashMap<>();
        FileDescriptor last = null;
        for (FileDescriptorProto one : FileDescriptorSet.parseFrom(set).getFileList()) {
            FileDescriptor[] imports =
                one.getDependencyList().stream().map(built::get).toArray(FileDescriptor[]::new);
            last = FileDescriptor.buildFrom(one, imports);
            built.put(one.getName(), last);
        }
        return last;
    }

    private static Descriptor type(FileDescriptor file, CodedInputStream in) throws Exception {
        int depth = in.readSInt32();
        Descriptor found = file.getMessageTypes().get(depth == 0 ? 0 : in.readSInt32());
        for (int at = 1; at < depth; at++) {
            found = found.getNestedTypes().stream()
                .filter(it -> !it.getOptions().getMapEntry()).toList().get(in.readSInt32());
        }
        return found;
    }

    private static int unknown(Message message) {
        int count = message.getUnknownFields().asMap().size();
        for (Object value : message.getAllFields().values()) {
            for (Object one : value instanceof List<?> list ? list : List.of(value)) {
                count += one instanceof Message inner ? unknown(inner) : 0;
            }
        }
        return count;
    }
}
