import java.nio.charset.StandardCharsets;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;

/**
 * Where Kafka's own producer sends keys. Arguments: bootstrap servers, topic. Standard input: one key
 * a line, in hexadecimal digits, "null" for none. Standard output: a line "hashes" with murmur2 of
 * each key that there is, then a line for each setting with the partition of each record.
 */
public class Partitions {
    private static final Map<String, Map<String, Object>> SETTINGS = Map.of(
        "built-in", Map.of(),
        "ignore.keys", Map.of("partitioner.ignore.keys", "true"),
        "RoundRobinPartitioner", Map.of(
            "partitioner.class", "org.apache.kafka.clients.producer.RoundRobinPartitioner"));

    public static void main(String[] arguments) throws Exception {
        List<byte[]> keys = new ArrayList<>();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            keys.add(line.equals("null") ? null : HexFormat.of().parseHex(line));
        }
        print("hashes", keys.stream().filter(key -> key != null).map(Utils::murmur2).toList());
        for (Map.Entry<String, Map<String, Object>> setting : SETTINGS.entrySet()) {
            print(setting.getKey(), partitions(arguments[0], arguments[1], keys, setting.getValue()));
        }
    }

    private static List<Integer> partitions(
            String servers, String topic, List<byte[]> keys, Map<String, Object> setting)
            throws Exception {
        Map<String, Object> options = new java.util.HashMap<>(setting);
        options.put("bootstrap.servers", servers);
        options.put("batch.size", 1000);  // so that records without a key see several partitions
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                options, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (byte[] key : keys) {
                sent.add(producer.send(new ProducerRecord<>(topic, key, new byte[100])));
            }
            producer.flush();
        }
        List<Integer> partitions = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) {
            partitions.add(future.get().partition());
        }
        return partitions;
    }

    private static void print(String name, List<Integer> numbers) {
        System.out.println(name + " "
            + numbers.stream().map(String::valueOf).collect(Collectors.joining(" ")));
    }
}
