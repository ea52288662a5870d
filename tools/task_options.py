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
        "Most writes need only the two options of the example: the addresses of some brokers, and"
        " the topic. In place of setting options in the code, you can write them into a properties"
        " file, and set the option `configFile` to its path.",
        ("kafka.bootstrap.servers", "topic", "configFile", "preflight", "kafka.client.id",
         "kafka.client.dns.lookup"),
        _SERVERS,
    ),
    Task(
        "Make keys, values and headers from columns",
        "The example writes the columns `id`, `customer` and `amount` as a JSON object. The"
        " column `id` is also the key. [Columns](columns.md) lists the types that a column can"
        " have.",
        ("valueColumns", "valueFormat", "keyColumns", "keyFormat", "headersColumns",
         "onNullKey", "onNullValue", "timestampColumn", "jsonIgnoreNullFields", "jsonPlainDecimals",
         "jsonTimestampFormat", "jsonTimestampNtzFormat"),
        {**_SERVERS, "valueColumns": "id, customer, amount", "keyColumns": "id",
         "keyFormat": "string"},
    ),
    Task(
        "Write the changes of a table",
        "The changes are the inserts, updates and deletes of a table, for example from Delta Lake's"
        " change data feed (`delta-cdf`). First pass the changes to the function `upserts`, which"
        " keeps only the last change of each key. In the example, `df` is the result of `upserts`"
        " ([changelogs](changelogs.md)).",
        ("changelog", "changelog.mode"),
        {**_SERVERS, "changelog": "delta-cdf", "keyColumns": "id", "valueColumns": "*"},
    ),
    Task(
        "Write with a schema (Avro, Protobuf, JSON Schema)",
        "The example makes an Avro schema from the columns, and registers it."
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
        "In the example, a row that can't be sent becomes a record of the topic `dlq.orders`. If"
        " more than 1 % of the rows can't be sent, the write fails ([dead"
        " letters](dead-letters.md)).",
        ("errors.*",),
        {**_SERVERS, "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq.orders",
         "errors.max.fraction": "0.01"},
    ),
    Task(
        "Choose a guarantee",
        "Usually you set only `deliveryGuarantee`. This option decides the values of the other"
        " options in the list. [Delivery guarantees](delivery-guarantees.md) compares the three"
        " values of `deliveryGuarantee`.",
        ("deliveryGuarantee", "kafka.acks", "kafka.enable.idempotence", "kafka.retries",
         "kafka.max.in.flight.requests.per.connection"),
        {**_SERVERS, "deliveryGuarantee": "at-least-once"},
    ),
    Task(
        "Write each row once",
        "A stream needs `transactionalIdPrefix`. A batch job that may run again needs `txnAppId`"
        " and `txnVersion`. In the example, `txnAppId` names the job and the day. The job has one"
        " write for each day, so `txnVersion` is always `1`. After this write is committed,"
        " another run of the job for the same day writes nothing. Consumers must set"
        " `isolation.level=read_committed` ([exactly once](exactly-once.md)).",
        ("transactionalIdPrefix", "txnAppId", "txnVersion", "kafka.transaction.timeout.ms",
         "verifyReplays", "offsetsGroup", "offsetsGroupInUse", "commitLogTopic"),
        {**_SERVERS, "deliveryGuarantee": "exactly-once", "txnAppId": "daily-orders-2026-11-22",
         "txnVersion": "1"},
    ),
    Task(
        "Choose partitions",
        "By default, a key goes to the same partition as with Kafka's Java clients. If other"
        " producers of the topic use another rule, set `kafka.partitioner.class` to the"
        " [name](options.md#keys-and-partitioners) of this rule. The example has the default rule"
        " of librdkafka.",
        ("kafka.partitioner.*", "kafka.client.rack"),
        {**_SERVERS, "kafka.partitioner.class": "consistent_random"},
    ),
    Task(
        "Write faster, or smaller",
        "First try the compression `lz4`. Before you change a size, such as `kafka.buffer.memory`,"
        " look at the [report](reports.md) of the write. The report shows whether this size slows"
        " the write down ([tuning](tuning.md)).",
        ("kafka.compression.*", "kafka.batch.size", "kafka.linger.ms", "kafka.buffer.memory",
         "kafka.max.request.size", "kafka.send.buffer.bytes", "kafka.receive.buffer.bytes"),
        {**_SERVERS, "kafka.compression.type": "lz4", "kafka.buffer.memory": "67108864"},
    ),
    Task(
        "Survive slow or restarting brokers",
        "If brokers have not acknowledged a row after `kafka.delivery.timeout.ms`, the task"
        " fails. In the example, this time is 10 minutes.",
        ("kafka.delivery.timeout.ms", "kafka.request.timeout.ms", "kafka.max.block.ms",
         "kafka.retry.backoff.*", "kafka.reconnect.backoff.*",
         "kafka.socket.connection.setup.*", "kafka.connections.max.idle.ms", "kafka.metadata.*"),
        {**_SERVERS, "kafka.delivery.timeout.ms": "600000"},
    ),
    Task(
        "Limit the load on brokers",
        "In the example, all tasks of the write together send at most 10 MB per second"
        " ([tuning](tuning.md#a-limit-for-the-rate-of-a-write)).",
        ("maxRecordsPerSecond", "maxBytesPerSecond", "tasksAtOnce"),
        {**_SERVERS, "maxBytesPerSecond": "10000000"},
    ),
    Task(
        "Write with hundreds of tasks",
        "Each task connects to each broker that it writes to, so a job with many tasks opens many"
        " connections. In the example, a task normally sends the rows that have no key to at most"
        " two brokers. When the tasks of the write start, all tasks together open at most about 100"
        " connections per second to each broker ([connections](tuning.md#connections)).",
        ("maxLeadersPerTask", "connectionsPerSecond"),
        {**_SERVERS, "maxLeadersPerTask": "2", "connectionsPerSecond": "100"},
    ),
    Task(
        "Encrypt (TLS)",
        "If the brokers' certificate comes from your own CA, set a truststore with the"
        " certificate of this CA, as in the example. If the brokers require a client certificate,"
        " also set a keystore ([secure listeners](security.md#tls)).",
        ("kafka.security.protocol", "kafka.ssl.*"),
        {**_SERVERS, "kafka.security.protocol": "SSL",
         "kafka.ssl.truststore.location": "/etc/kafka/ca.pem"},
    ),
    Task(
        "Log in (SASL)",
        "The example is for SCRAM: set the user name, and a reference to a file with the"
        " password. [Secure listeners](security.md#sasl) describes the other mechanisms.",
        ("kafka.sasl.*",),
        {**_SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512",
         "kafka.sasl.username": "spark", "kafka.sasl.password": "${file:/etc/secrets/kafka}"},
    ),
    Task(
        "See the figures of a write",
        "The *report* of a write has the numbers of rows and bytes, the times, and the outcome of"
        " the write. In the example, the driver stores the report of each write as a file in the"
        " directory `/var/log/kprod/orders/` ([reports](reports.md)).",
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
        "For each task, this page has an example, and a list of all options for this task. Each"
        " name is a link to the description of the option. Some options of the examples change the"
        " default of another option. The list has such a changed default in brackets. For example,"
        " with `deliveryGuarantee=exactly-once`, the default of `kafka.transaction.timeout.ms` is"
        " `900000`."
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
