import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.tools.DumpLogSegments;
import org.apache.kafka.tools.api.Decoder;

/** kafka-dump-log --deep-iteration --print-data-log, with keys and values in hexadecimal digits. */
public class HexDump implements Decoder<String> {
    @Override
    public String fromBytes(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    public static void main(String[] files) throws Exception {
        // The tool looks for its decoders there; Java keeps what it compiled at its start elsewhere.
        Thread.currentThread().setContextClassLoader(HexDump.class.getClassLoader());
        String decoder = HexDump.class.getName();
        List<String> arguments = new ArrayList<>(List.of(
            "--deep-iteration", "--print-data-log",
            "--key-decoder-class", decoder, "--value-decoder-class", decoder,
            "--files", String.join(",", Arrays.asList(files))));
        DumpLogSegments.main(arguments.toArray(String[]::new));
    }
}
