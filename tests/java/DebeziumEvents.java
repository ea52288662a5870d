// Reads the changes of a PostgreSQL with Debezium's embedded engine, until a row of the table
// "ended" comes: a line of JSON for each record, with what Debezium's own ExtractNewRecordState
// makes of it. The classes are Debezium's; see tests/changelogs/debezium.py.
//
//     java -cp JARS DebeziumEvents.java PORT TABLES OUTPUT
//
// It prints "snapshot" when the rows that were there at its start have been read.

import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import io.debezium.transforms.ExtractNewRecordState;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;

public class DebeziumEvents {
    private static final JsonConverter JSON = new JsonConverter();
    private static final ExtractNewRecordState<SourceRecord> UNWRAP = new ExtractNewRecordState<>();

    public static void main(String[] given) throws Exception {
        JSON.configure(Map.of("schemas.enable", "false"), false);
        UNWRAP.configure(Map.of());
        CountDownLatch ended = new CountDownLatch(1);
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(given[2])))) {
            DebeziumEngine<RecordChangeEvent<SourceRecord>> engine =
                DebeziumEngine.create(ChangeEventFormat.of(Connect.class))
                    .using(settings(given[0], given[1]))
                    .using((success, message, error) -> {
                        if (!success) {
                            System.err.println(message);
                            if (error != null) {
                                error.printStackTrace();
                            }
                        }
                        ended.countDown();
                    })
                    .notifying(event -> {
                        SourceRecord record = event.record();
                        if (record.topic().endsWith(".ended")) {
                            ended.countDown();
                            return;
                        }
                        out.println(line(record));
                        if (isLastOfSnapshot(record)) {
                            System.out.println("snapshot");
                        }
                    })
                    .build();
            var threads = Executors.newSingleThreadExecutor();
            threads.execute(engine);
            ended.await();
            engine.close();
            threads.shutdown();
        }
    }

    private static Properties settings(String port, String tables) {
        Properties made = new Properties();
        made.putAll(Map.of(
            "name", "events",
            "connector.class", "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage", "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "offset.flush.interval.ms", "60000",
            "topic.prefix", "db",
            "plugin.name", "pgoutput",
            "table.include.list", tables));
        made.putAll(Map.of(
            "database.hostname", "127.0.0.1",
            "database.port", port,
            "database.user", "postgres",
            "database.password", "none",
            "database.dbname", "postgres",
            // As an envelope of JSON has it, that is read without Debezium's schemas.
            "decimal.handling.mode", "string",
            "time.precision.mode", "isostring"));
        return made;
    }

    private static boolean isLastOfSnapshot(SourceRecord record) {
        if (!(record.value() instanceof Struct value) || value.schema().field("source") == null) {
            return false;
        }
        return "last".equals(value.getStruct("source").getString("snapshot"));
    }

    private static String line(SourceRecord record) {
        SourceRecord made = UNWRAP.apply(record);
        String unwrapped = made == null ? "null" : "{" + pair(made) + "}";
        return "{\"topic\":\"" + record.topic() + "\"," + pair(record) + ",\"unwrapped\":" + unwrapped
            + "}";
    }

    private static String pair(SourceRecord record) {
        return "\"key\":" + text(record.topic(), record.keySchema(), record.key())
            + ",\"value\":" + text(record.topic(), record.valueSchema(), record.value());
    }

    private static String text(String topic, Schema schema, Object of) {
        byte[] made = of == null ? null : JSON.fromConnectData(topic, schema, of);
        return made == null ? "null" : new String(made, StandardCharsets.UTF_8);
    }
}
