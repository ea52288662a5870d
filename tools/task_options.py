"""docs/options-by-task.md: the sink's options by the user's task, with examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tables import anchor_of

from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.parsing import parse_sink_config


@dataclass(frozen=True, slots=True)
class Task:
    """A user's task, the options for it (``ssl.*`` is a family of options), and an example."""

    title: str
    words: str
    options: tuple[str, ...]
    example: dict[str, str]


_SERVERS = {"kafka.bootstrap.servers": "broker1:9092,broker2:9092", "topic": "orders"}
TASKS = (
    Task(
        "Name the brokers and the topic",
        "Most writes need only the two options of the example. Give the addresses of two or"
        " three brokers: from them, the sink learns the addresses of all brokers. To keep options"
        " out of the code, write the options into a properties file, and set the option"
        " `configFile` to its path. The file must be on the driver. If the file contains secrets or"
        " `sasl.jaas.config`, the file must also be at the same path on every executor.",
        ("kafka.bootstrap.servers", "topic", "configFile", "preflight", "kafka.client.id",
         "kafka.client.dns.lookup"),
        _SERVERS,
    ),
    Task(
        "Make keys, values and headers from columns",
        "In the example, the value of each record is a JSON object with the columns `id`,"
        " `customer` and `amount`. The key of the record is the text of the column `id`."
        " [Columns](columns.md) lists the types that a column can have.",
        ("valueColumns", "valueFormat", "keyColumns", "keyFormat", "headersColumns",
         "onNullKey", "onNullValue", "timestampColumn", "jsonIgnoreNullFields", "jsonPlainDecimals",
         "jsonTimestampFormat", "jsonTimestampNtzFormat"),
        {**_SERVERS, "valueColumns": "id, customer, amount", "keyColumns": "id",
         "keyFormat": "string"},
    ),
    Task(
        "Write the changes of a table",
        "In the example, the changes come from the change data feed of a Delta table. First call"
        " this package's function `upserts`, which keeps only the last change of each key:"
        " `df = upserts(changes, keys=['id'])`. Without this call, an old change could become"
        " the last record of its key. Then write `df` ([changelogs](changelogs.md)).",
        ("changelog", "changelog.mode"),
        {**_SERVERS, "changelog": "delta-cdf", "keyColumns": "id", "valueColumns": "*"},
    ),
    Task(
        "Write with a schema (Avro, Protobuf, JSON Schema)",
        "The option `valueFormat` sets the format of the values, and `keyFormat` the format of"
        " the keys. The example makes an Avro schema from the columns, and registers it."
        " [Formats](formats.md) shows how to use your own schema, and lists the types that a"
        " column can have.",
        ("valueSchema", "valueSchemaName", "value.subject.name.strategy",
         "value.schema.id.serializer", "keySchema", "keySchemaName", "key.subject.name.strategy",
         "key.schema.id.serializer", "schemaTopics", "auto.register.schemas",
         "use.latest.version", "use.schema.id", "normalize.schemas", "schema.registry.*",
         "basic.auth.*", "bearer.auth.*"),
        {**_SERVERS, "valueColumns": "*", "valueFormat": "avro",
         "schema.registry.url": "https://registry:8081", "auto.register.schemas": "true"},
    ),
    Task(
        "Keep rows that can't be sent",
        "By default, the write fails if a row can't be sent, for example because the row is too"
        " large for the topic. In the example, such a row becomes a record of the topic"
        " `dlq.orders`. If more than 1 % of the rows of a batch can't be sent, the write still"
        " fails ([dead letters](dead-letters.md)).",
        ("errors.*",),
        {**_SERVERS, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq.orders",
         "errors.max.fraction": "0.01"},
    ),
    Task(
        "Choose a guarantee",
        "`deliveryGuarantee` is `none`, `at-least-once` (the default) or `exactly-once`"
        " ([comparison](delivery-guarantees.md)). Usually you set only this option. The other"
        " options below then have the values that the guarantee needs.",
        ("deliveryGuarantee", "kafka.acks", "kafka.enable.idempotence", "kafka.retries",
         "kafka.max.in.flight.requests.per.connection"),
        {**_SERVERS, "deliveryGuarantee": "at-least-once"},
    ),
    Task(
        "Write each row once (exactly-once)",
        "Consumers with `isolation.level=read_committed` see each row once. Other consumers can"
        " see rows of failed attempts. A stream also needs the option `transactionalIdPrefix`. A"
        " batch job that may run again also needs a name in `txnAppId`, and a version number in"
        " `txnVersion`. Each run for the same rows needs the same name and version number. In the"
        " example, the name contains the day, and each day is written once, so the version number"
        " is always `1`. After the write is committed, a second run with the same `txnAppId` and"
        " `txnVersion` writes nothing. The sink only counts the rows and bytes of the second"
        " run: if the counts differ from those of the committed write, the second run fails"
        " ([exactly once](exactly-once.md)).",
        ("transactionalIdPrefix", "txnAppId", "txnVersion", "kafka.transaction.timeout.ms",
         "verifyReplays", "offsetsGroup", "offsetsGroupInUse", "commitLogTopic"),
        {**_SERVERS, "deliveryGuarantee": "exactly-once", "txnAppId": "daily-orders-2026-11-22",
         "txnVersion": "1"},
    ),
    Task(
        "Choose partitions",
        "By default, a key goes to the same partition as with Kafka's Java clients. The default"
        " of clients with librdkafka is different. If such a client writes to the same topic, set"
        " `kafka.partitioner.class` as in the example. [Partitioners]"
        "(options.md#keys-and-partitioners) lists all values.",
        ("kafka.partitioner.*", "kafka.client.rack"),
        {**_SERVERS, "kafka.partitioner.class": "consistent_random"},
    ),
    Task(
        "Write faster, or fewer bytes",
        "First set the compression, for example to `lz4`. Change sizes, such as"
        " `kafka.buffer.memory`, only if the [report](reports.md) of a write shows a reason. For"
        " example, a high `bufferWaitMs` means that tasks waited for memory of this buffer"
        " ([tuning](tuning.md)).",
        ("kafka.compression.*", "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory",
         "kafka.max.request.size", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes"),
        {**_SERVERS, "kafka.compression.type": "lz4", "kafka.buffer.memory": "67108864"},
    ),
    Task(
        "Survive slow or restarting brokers",
        "If brokers have not acknowledged a row when `kafka.delivery.timeout.ms` is over, the"
        " task fails. The default is 2 minutes. The example sets 10 minutes.",
        ("kafka.delivery.timeout.ms", "kafka.request.timeout.ms", "kafka.max.block.ms",
         "kafka.retry.backoff.*", "kafka.reconnect.backoff.*",
         "kafka.socket.connection.setup.*", "kafka.connections.max.idle.ms", "kafka.metadata.*"),
        {**_SERVERS, "kafka.delivery.timeout.ms": "600000"},
    ),
    Task(
        "Limit the load on brokers",
        "In the example, all tasks of the write together send at most 10 MB per second. The"
        " sink counts the bytes before compression"
        " ([tuning](tuning.md#a-limit-for-the-rate-of-a-write)).",
        ("maxRecordsPerSecond", "maxBytesPerSecond", "tasksAtOnce"),
        {**_SERVERS, "maxBytesPerSecond": "10000000"},
    ),
    Task(
        "Write with hundreds of tasks",
        "Each task connects to each broker that it writes to, so a job with many tasks opens"
        " many connections. In the example, a task normally sends rows without a key to at most"
        " two brokers. When the tasks start, all tasks together open at most about 100"
        " connections per second to each broker ([connections](tuning.md#connections)).",
        ("maxLeadersPerTask", "connectionsPerSecond"),
        {**_SERVERS, "maxLeadersPerTask": "2", "connectionsPerSecond": "100"},
    ),
    Task(
        "Encrypt (TLS)",
        "To encrypt the connections, set `kafka.security.protocol` to `SSL`. If the brokers'"
        " certificate comes from your own certificate authority (CA), also set a truststore, as"
        " in the example: a file with the certificate of the CA. If the brokers require a"
        " client certificate, also set a keystore ([secure listeners](security.md#tls)).",
        ("kafka.security.protocol", "kafka.ssl.*"),
        {**_SERVERS, "kafka.security.protocol": "SSL",
         "kafka.ssl.truststore.location": "/etc/kafka/ca.pem"},
    ),
    Task(
        "Log in (SASL)",
        "The example is for the mechanism SCRAM. `${file:/etc/secrets/kafka}` is a reference to"
        " a file with the password. The file must exist on the driver and on all executors."
        " [Secure listeners](security.md#sasl) describes the other mechanisms.",
        ("kafka.sasl.*",),
        {**_SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
         "kafka.sasl.username": "spark", "kafka.sasl.password": "${file:/etc/secrets/kafka}"},
    ),
    Task(
        "See the figures of a write",
        "A [report](reports.md) has the rows, the bytes, the duration and the outcome of a write."
        " In the example, each report is a file in the directory `/var/log/kprod/orders/` of the"
        " driver.",
        ("reportPath", "reportTopic",
         "reportListeners", "progressListeners", "progressTopic", "kafka.metrics.*",
         "kafka.interceptor.classes"),
        {**_SERVERS, "reportPath": "/var/log/kprod/orders/"},
    ),
)  # fmt: skip


def obeyed() -> dict[str, Option]:
    """The options that do something, by the names that users write."""
    own = {name: one for name, one in SINK_OPTIONS.items() if one.status is Status.HONOURED}
    kafka = {
        f"kafka.{name}": one
        for name, one in PRODUCER_OPTIONS.items()
        if one.status is Status.HONOURED
    }
    return {name: one for name, one in (own | kafka).items() if not one.internal}


def options_of(task: Task) -> Iterator[str]:
    """The names of a task's options, its families written out."""
    for wanted in task.options:
        yield from _family(wanted)


def _family(wanted: str) -> Iterator[str]:
    """The option ``wanted``, or each option of the family ``wanted``."""
    family = wanted.removesuffix("*")
    for name in obeyed():
        if name == wanted or (family != wanted and name.startswith(family)):
            yield name


def page_lines() -> Iterator[str]:
    yield ("For each task, this page has an example, and a list of all options for this task.")
    for task in TASKS:
        yield from (
            "",
            f"## {task.title}",
            "",
            task.words,
            "",
            "```python",
            '(df.write.format("kprod")',
        )
        yield from (f'   .option("{name}", "{value}")' for name, value in task.example.items())
        yield from (
            "   .save())",
            "```",
            "",
        )
        yield from _listed(task)


#: The largest number of options in a line. The families of a longer list have a line each.
_LONGEST = 12


def _listed(task: Task) -> Iterator[str]:
    """The options of ``task``, with links to their descriptions."""
    options = obeyed()

    def linked(names: Iterable[str]) -> str:
        shown = []
        for name in names:
            here = default_of(task, options[name])
            is_other = here != options[name].default
            default = f" (default in this example: {_default(here)})" if is_other else ""
            shown.append(f"[`{name}`](options.md#{anchor_of(name)}){default}")
        return ", ".join(shown)

    if len(list(options_of(task))) <= _LONGEST:
        yield f"Options: {linked(options_of(task))}."
        return
    yield from ("Options:", "")
    single = [name for name in task.options if not name.endswith("*")]
    if single:
        yield f"* {linked(single)}"
    for family in task.options:
        if family.endswith("*"):
            yield f"* {linked(_family(family))}"


def default_of(task: Task, option: Option) -> object:
    """The option's default in the task's example: some defaults follow from other options."""
    if option.name in SINK_OPTIONS or f"kafka.{option.name}" in task.example:
        return option.default
    counts = getattr(parse_sink_config(task.example).producer, option.attribute, None)
    return counts if type(counts) is type(option.default) else option.default


def _default(value: object) -> str:
    if value is None or value in ("", ()):
        return "-"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
