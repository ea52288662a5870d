// How Java reads a client's settings. One question a line, in base64:
//   P <a properties file>      name=value of each property, both in base64, sorted, with blanks between
//   J <a sasl.jaas.config>     the same of the login module's options, or "refused"
//   C <a properties file>      "taken" by the Java producer as its configuration, else what is wrong

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class ClientFile {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String text = decode(line.substring(2));
            System.out.println(
                switch (line.charAt(0)) {
                    case 'P' -> properties(text);
                    case 'J' -> login(text);
                    default -> configuration(text);
                });
        }
    }

    private static String properties(String text) throws Exception {
        Properties read = new Properties();
        read.load(new StringReader(text));
        Map<String, Object> found = new TreeMap<>();
        for (String name : read.stringPropertyNames()) {
            found.put(name, read.getProperty(name));
        }
        return shown(found);
    }

    private static String configuration(String text) throws Exception {
        Properties read = new Properties();
        read.load(new StringReader(text));
        read.stringPropertyNames().stream()
            .filter(name -> name.endsWith(".handler.class"))
            .forEach(read::remove); // a jar that is not here
        for (String name : read.stringPropertyNames()) {
            if (!ProducerConfig.configNames().contains(name)) {
                return "unknown: " + name;
            }
        }
        read.put("key.serializer", ByteArraySerializer.class);
        read.put("value.serializer", ByteArraySerializer.class);
        try {
            new ProducerConfig(read);
            return "taken";
        } catch (RuntimeException refused) {
            return refused.getMessage();
        }
    }

    private static String login(String text) {
        try {
            Map<String, Object> configs = Map.of(SaslConfigs.SASL_JAAS_CONFIG, new Password(text));
            Map<String, ?> options =
                JaasContext.loadClientContext(configs).configurationEntries().get(0).getOptions();
            return shown(new TreeMap<>(options));
        } catch (RuntimeException refused) {
            return "refused";
        }
    }

    private static String shown(Map<String, ?> found) {
        return found.entrySet().stream()
            .map(one -> encode(one.getKey()) + "=" + encode(String.valueOf(one.getValue())))
            .collect(Collectors.joining(" "));
    }

    private static String encode(String text) {
        // Without padding: = stands between name and value.
        return Base64.getEncoder().withoutPadding().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }

    private static String decode(String text) {
        return new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }
}
