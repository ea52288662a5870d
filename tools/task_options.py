"""docs/options-by-task.md: the sink's options by the user's task, with examples."""

from __future__ import annotations

from collections.abc import Iterator
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
        "A write needs only brokers and a topic. A `configFile` may contain both, and all other"
        " options of this page.",
        ("kafka.bootstrap.servers", "topic", "configFile", "preflight", "kafka.client.id",
         "kafka.client.dns.lookup"),
        _SERVERS,
    ),
    Task(
        "Make values, keys and headers of any columns",
        "[Columns](columns.md) lists the types and the errors.",
        ("valueColumns", "valueFormat", "keyColumns", "keyFormat", "headersColumns",
         "onNullKey", "onNullValue", "timestampColumn", "jsonIgnoreNullFields", "jsonPlainDecimals",
         "jsonTimestampFormat", "jsonTimestampNtzFormat"),
        {**_SERVERS, "valueColumns": "id, customer, amount", "keyColumns": "id",
         "keyFormat": "string"},
    ),
    Task(
        "Write the changes of a table",
        "[Changelogs](changelogs.md) lists the formats of changes, and the cases in which you call"
        " the function `upserts` before the write.",
        ("changelog", "changelog.mode"),
        {**_SERVERS, "changelog": "delta-cdf", "keyColumns": "id", "valueColumns": "*"},
    ),
    Task(
        "Write with a schema (Avro, Protobuf, JSON Schema)",
        "[Formats](formats.md) lists the types of columns. It also shows where the sink looks for a"
        " schema, and in which order.",
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
        "A row that can't be sent becomes a record of another topic. With exactly-once, this record"
        " is in the same transaction as the other rows ([dead letters](dead-letters.md)).",
        ("errors.*",),
        {**_SERVERS, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq.orders",
         "errors.max.fraction": "0.01"},
    ),
    Task(
        "Choose a guarantee",
        "Set only `deliveryGuarantee`, which sets the other options."
        " [Delivery guarantees](delivery-guarantees.md) compares the three guarantees.",
        ("deliveryGuarantee", "kafka.acks", "kafka.enable.idempotence", "kafka.retries",
         "kafka.max.in.flight.requests.per.connection"),
        {**_SERVERS, "deliveryGuarantee": "at-least-once"},
    ),
    Task(
        "Write each row once",
        "A stream needs `transactionalIdPrefix`. A job that may run again needs `txnAppId` and"
        " `txnVersion`: `txnAppId` names the job and the day ([exactly once](exactly-once.md)).",
        ("transactionalIdPrefix", "txnAppId", "txnVersion", "kafka.transaction.timeout.ms",
         "verifyReplays", "offsetsGroup", "offsetsGroupInUse", "commitLogTopic"),
        {**_SERVERS, "deliveryGuarantee": "exactly-once", "txnAppId": "daily-orders-2026-11-22",
         "txnVersion": "1"},
    ),
    Task(
        "Choose partitions",
        "By default, a key goes to the same partition as with Java's client. Partitioners of other"
        " clients are chosen by their [name](options.md#keys-and-partitioners).",
        ("kafka.partitioner.*", "kafka.client.rack"),
        {**_SERVERS, "kafka.partitioner.class": "consistent_random"},
    ),
    Task(
        "Write faster, or smaller",
        "Try `lz4` first. Before you change sizes, read the report of the write"
        " ([tuning](tuning.md)).",
        ("kafka.compression.*", "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory",
         "kafka.max.request.size", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes"),
        {**_SERVERS, "kafka.compression.type": "lz4", "kafka.buffer.memory": "67108864"},
    ),
    Task(
        "Survive slow or restarting brokers",
        "`kafka.delivery.timeout.ms` decides when a task fails.",
        ("kafka.delivery.timeout.ms", "kafka.request.timeout.ms", "kafka.max.block.ms",
         "kafka.retry.backoff.*", "kafka.reconnect.backoff.*",
         "kafka.socket.connection.setup.*", "kafka.connections.max.idle.ms", "kafka.metadata.*"),
        {**_SERVERS, "kafka.delivery.timeout.ms": "600000"},
    ),
    Task(
        "Limit the load on brokers",
        "The limit is for all tasks of a write together ([tuning](tuning.md#a-limit-of-your-own)).",
        ("maxRecordsPerSecond", "maxBytesPerSecond", "tasksAtOnce"),
        {**_SERVERS, "maxBytesPerSecond": "10000000"},
    ),
    Task(
        "Write with hundreds of tasks",
        "Each task connects to each broker that it writes to"
        " ([connections](tuning.md#connections)).",
        ("maxLeadersPerTask", "connectionsPerSecond"),
        {**_SERVERS, "maxLeadersPerTask": "2", "connectionsPerSecond": "100"},
    ),
    Task(
        "Encrypt (TLS)",
        "If the operating system does not trust the CA of the brokers, set a truststore. If the"
        " brokers require a client certificate, set a keystore"
        " ([secure listeners](security.md#tls)).",
        ("kafka.security.protocol", "kafka.ssl.*"),
        {**_SERVERS, "kafka.security.protocol": "SSL",
         "kafka.ssl.truststore.location": "/etc/kafka/ca.pem"},
    ),
    Task(
        "Log in (SASL)",
        "Set the user name, and a reference to the password. [Secure"
        " listeners](security.md#sasl) describes the other mechanisms.",
        ("kafka.sasl.*",),
        {**_SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
         "kafka.sasl.username": "spark", "kafka.sasl.password": "${file:/etc/secrets/kafka}"},
    ),
    Task(
        "See the figures of a write",
        "[Reports](reports.md) lists the fields and the outcomes.",
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
        family = wanted.removesuffix("*")
        for name in obeyed():
            if name == wanted or (family != wanted and name.startswith(family)):
                yield name


def page_lines() -> Iterator[str]:
    yield (
        "This page lists the options for each task, with links to their descriptions. Some options"
        " change the default of other options. If an example sets such an option, the list below"
        " the example has the new default in brackets."
    )
    options = obeyed()
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
        shown = []
        for name in options_of(task):
            here = default_of(task, options[name])
            default = f" ({_default(here)})" if here != options[name].default else ""
            shown.append(f"[`{name}`](options.md#{anchor_of(name)}){default}")
        yield f"Options: {', '.join(shown)}."


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
