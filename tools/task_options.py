"""docs/options-by-task.md: what the sink obeys, by what a user wants, with examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tables import anchor_of

from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.sink_config import SinkConfig


@dataclass(frozen=True, slots=True)
class Task:
    """What somebody wants, the options for it (``ssl.*`` for a family), and what to write."""

    title: str
    words: str
    options: tuple[str, ...]
    example: dict[str, str]


_SERVERS = {"kafka.bootstrap.servers": "broker1:9092,broker2:9092", "topic": "orders"}
TASKS = (
    Task(
        "Say where the rows go",
        "Servers and a topic are enough. A `configFile` may have both, and everything below.",
        ("kafka.bootstrap.servers", "topic", "configFile", "preflight", "kafka.client.id",
         "kafka.client.dns.lookup"),
        _SERVERS,
    ),
    Task(
        "Make values, keys and headers of any columns",
        "[Columns](columns.md) has the types, and what is an error.",
        ("valueColumns", "valueFormat", "keyColumns", "keyFormat", "headersColumns",
         "onNullValue"),
        {**_SERVERS, "valueColumns": "id, customer, amount", "keyColumns": "id",
         "keyFormat": "string"},
    ),
    Task(
        "Write with a schema (Avro, Protobuf, JSON Schema)",
        "[Formats](formats.md) has the types, and which schema counts.",
        ("valueSchema", "valueSchemaName", "value.subject.name.strategy",
         "value.schema.id.serializer", "keySchema", "keySchemaName", "key.subject.name.strategy",
         "key.schema.id.serializer", "auto.register.schemas",
         "use.latest.version", "use.schema.id", "normalize.schemas", "schema.registry.*",
         "basic.auth.*", "bearer.auth.*"),
        {**_SERVERS, "valueColumns": "*", "valueFormat": "avro",
         "schema.registry.url": "https://registry:8081", "auto.register.schemas": "true"},
    ),
    Task(
        "Keep rows that can't be sent",
        "Each becomes a record of another topic, in the same transaction"
        " ([dead letters](dead-letters.md)).",
        ("errors.*",),
        {**_SERVERS, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq.orders",
         "errors.max.fraction": "0.01"},
    ),
    Task(
        "Choose what is promised",
        "Set `deliveryGuarantee`, and leave the others alone: it sets them."
        " [Delivery guarantees](delivery-guarantees.md) compares the three.",
        ("deliveryGuarantee", "kafka.acks", "kafka.enable.idempotence", "kafka.retries",
         "kafka.max.in.flight.requests.per.connection"),
        {**_SERVERS, "deliveryGuarantee": "at-least-once"},
    ),
    Task(
        "Write each row once",
        "A stream needs `transactionalIdPrefix`, a job that may run again `txnAppId` and"
        " `txnVersion` ([tutorial](tutorial-exactly-once.md)).",
        ("transactionalIdPrefix", "txnAppId", "txnVersion", "kafka.transaction.timeout.ms",
         "verifyReplays", "offsetsGroup", "offsetsGroupInUse", "twoPhaseCommit", "commitLogTopic"),
        {**_SERVERS, "deliveryGuarantee": "exactly-once", "txnAppId": "daily-orders",
         "txnVersion": "20261122"},
    ),
    Task(
        "Choose partitions",
        "Unset, a key goes where Java's clients put it."
        " [Partitioners](options.md#keys-and-partitioners) of other clients have names.",
        ("kafka.partitioner.*", "kafka.client.rack"),
        {**_SERVERS, "kafka.partitioner.class": "consistent_random"},
    ),
    Task(
        "Write faster, or smaller",
        "Try `lz4` first, and read the report before you change sizes ([tuning](tuning.md)).",
        ("kafka.compression.*", "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory",
         "kafka.max.request.size", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes"),
        {**_SERVERS, "kafka.compression.type": "lz4", "kafka.buffer.memory": "67108864"},
    ),
    Task(
        "Ride out slow or restarting brokers",
        "`kafka.delivery.timeout.ms` is the one that decides when a task fails.",
        ("kafka.delivery.timeout.ms", "kafka.request.timeout.ms", "kafka.max.block.ms",
         "kafka.retry.backoff.*", "kafka.reconnect.backoff.*",
         "kafka.socket.connection.setup.*", "kafka.connections.max.idle.ms", "kafka.metadata.*"),
        {**_SERVERS, "kafka.delivery.timeout.ms": "600000"},
    ),
    Task(
        "Spare brokers and other users of them",
        "A limit for all tasks together ([tuning](tuning.md#a-limit-of-your-own)).",
        ("maxRecordsPerSecond", "maxBytesPerSecond", "tasksAtOnce"),
        {**_SERVERS, "maxBytesPerSecond": "10000000"},
    ),
    Task(
        "Encrypt (TLS)",
        "A CA that the system does not know, and a client certificate when brokers want one"
        " ([secure listeners](security.md#tls)).",
        ("kafka.security.protocol", "kafka.ssl.*"),
        {**_SERVERS, "kafka.security.protocol": "SSL",
         "kafka.ssl.truststore.location": "/etc/kafka/ca.pem"},
    ),
    Task(
        "Log in (SASL)",
        "A user and a password by reference; other mechanisms are in"
        " [secure listeners](security.md#sasl).",
        ("kafka.sasl.*",),
        {**_SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
         "kafka.sasl.username": "spark", "kafka.sasl.password": "${file:/etc/secrets/kafka}"},
    ),
    Task(
        "Know what was written",
        "[Reports](reports.md) lists the fields and the outcomes.",
        ("reportPath", "reportPathRetentionBytes", "reportPathRetentionMs", "reportTopic",
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
        "Which options belong together; each leads to what it does. A default in brackets is that"
        " of the example where it differs from the usual one."
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
    """What counts in the task's example, unless that sets it: some defaults follow from others."""
    if option.name in SINK_OPTIONS or f"kafka.{option.name}" in task.example:
        return option.default
    counts = getattr(SinkConfig.parse(task.example).producer, option.attribute, None)
    return counts if type(counts) is type(option.default) else option.default


def _default(value: object) -> str:
    if value is None or value in ("", ()):
        return "-"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
