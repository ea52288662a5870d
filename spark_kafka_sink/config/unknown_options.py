"""Option names of other components: Spark, a Kafka source, a consumer, Connect, librdkafka ...

Owns: those names, their equivalents here, and the error for an unknown name, with the nearest
existing one. Never: an option of ours (``option_table``).

The error for another component's option names that component, so that users don't search for a
misspelling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import REPLACE_IT
from spark_kafka_sink.config.option import Option, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.suggestions import nearest_name

#: The prefix of a producer's option among the options of a Spark write.
PREFIX = "kafka."


def _names(text: str) -> list[str]:
    return text.split()


#: Options that Spark adds to every write, and one that its own Kafka sink lists
#: but never reads: taken without a word.
SPARK_OPTIONS: dict[str, str] = {
    "path": "Spark passes the argument of save() and start(); a Kafka sink has no path",
    "checkpointLocation": "Spark's own: where a query keeps its progress",
    "queryName": "Spark's own: the name of a query",
    "includeHeaders": "Spark's Kafka sink takes it and never reads it: a headers column is written"
    " whenever there is one",
}

#: Options of Spark's Kafka source.
SOURCE_OPTIONS: tuple[str, ...] = tuple(
    _names("""
        assign subscribe subscribePattern startingTimestamp startingOffsetsByTimestamp
        startingOffsets startingOffsetsByTimestampStrategy endingTimestamp
        endingOffsetsByTimestamp endingOffsets failOnDataLoss kafkaConsumer.pollTimeoutMs
        fetchOffset.numRetries fetchOffset.retryIntervalMs maxOffsetsPerTrigger
        minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition groupIdPrefix
        """)
)

#: The same names as they arrive: folded.
SPARK_KEYS = frozenset(name.lower() for name in SPARK_OPTIONS)
SOURCE_KEYS = frozenset(name.lower() for name in SOURCE_OPTIONS)

#: Kafka's consumer settings that no producer has (``ConsumerConfig`` less ``ProducerConfig``).
CONSUMER_KEYS: frozenset[str] = frozenset(
    _names("""
    allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs
    default.api.timeout.ms enable.auto.commit exclude.internal.topics fetch.max.bytes
    fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol
    group.remote.assignor heartbeat.interval.ms internal.leave.group.on.close
    internal.throw.on.fetch.stable.offset.unsupported isolation.level key.deserializer
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    partition.assignment.strategy session.timeout.ms share.acknowledgement.mode
    share.acquire.mode value.deserializer
    """)
)

#: librdkafka's producer settings whose name is not Java's -> Java's name, or None when Java has
#: nothing like it. The first Scala producer shared some of them.
LIBRDKAFKA_KEYS: dict[str, str | None] = {
    "metadata.broker.list": "bootstrap.servers",
    "message.max.bytes": "max.request.size",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "reconnect.backoff.jitter.ms": "reconnect.backoff.ms",
    "queue.buffering.max.messages": "buffer.memory",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "message.send.max.retries": "retries",
    "compression.codec": "compression.type",
    "compression.level": "compression.gzip.level, compression.lz4.level or compression.zstd.level",
    "batch.num.messages": "batch.size",
    "request.required.acks": "acks",
    "request.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "partitioner": "partitioner.class",
    "interceptors": "interceptor.classes",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.key",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "enable.ssl.certificate.verification": "ssl.endpoint.identification.algorithm",
    **dict.fromkeys(
        _names("""
        api.version.fallback.ms api.version.request api.version.request.timeout.ms
        broker.address.family broker.address.ttl broker.version.fallback debug
        delivery.report.only.error enable.gapless.guarantee enable.random.seed
        internal.termination.signal log.connection.close log.queue log.thread.name log_level
        message.copy.max.bytes plugin.library.paths produce.offset.report
        queue.buffering.backpressure.threshold queuing.strategy receive.message.max.bytes
        sasl.oauthbearer.config sasl.oauthbearer.method socket.blocking.max.ms
        socket.keepalive.enable socket.max.fails socket.nagle.disable statistics.interval.ms
        sticky.partitioning.linger.ms topic.blacklist topic.metadata.propagation.max.ms
        topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
        topic.metadata.refresh.sparse
        """)
    ),
}


#: ``AdminClientConfig`` less what producers and consumers have.
ADMIN_KEYS = frozenset({"bootstrap.controllers"})

#: Of Kafka Connect's workers and connectors, and the beginnings of whole families.
CONNECT_KEYS: frozenset[str] = frozenset(
    _names("""
    access.control.allow.methods access.control.allow.origin config.action.reload
    connector.class connector.client.config.override.policy exactly.once.source.support
    header.converter inter.worker.signature.algorithm internal.key.converter
    internal.value.converter key.converter offset.flush.interval.ms offset.flush.timeout.ms
    plugin.discovery plugin.path predicates rebalance.timeout.ms
    scheduled.rebalance.max.delay.ms task.shutdown.graceful.timeout.ms tasks.max
    topic.tracking.allow.reset topic.tracking.enable transforms value.converter
    worker.sync.timeout.ms worker.unsync.backoff.ms
    """)
)
CONNECT_BEGINNINGS = tuple(
    _names("""
    admin. config.storage. consumer. header.converter. internal.key.converter.
    internal.value.converter. key.converter. offset.storage. predicates. rest. status.storage.
    topic.creation. transforms. value.converter.
    """)
)

#: Of the clients and serializers of a schema registry, but for those that are options here.
REGISTRY_KEYS: frozenset[str] = frozenset(
    _names("""
    avro.reflection.allow.null avro.remove.java.properties avro.use.logical.type.converters
    id.compatibility.strict json.fail.invalid.schema latest.compatibility.strict
    max.schemas.per.subject proxy.host proxy.port schema.reflection specific.avro.reader
    use.latest.with.metadata
    """)
)
REGISTRY_BEGINNINGS = ("schema.registry.", "bearer.auth.", "apicurio.registry.")


@dataclass(frozen=True, slots=True)
class JavaPartitioner:
    """What a partitioner class of the Java client is here.

    ``name`` is its name in ``records.partitioning.partitioners``, None for the built-in
    one; ``ignores_keys`` is Java's own replacement for UniformStickyPartitioner (KIP-794).
    """

    name: str | None
    ignores_keys: bool = False


#: Before the short names of :data:`JAVA_PARTITIONERS` and, for the second, Java's inner package.
JAVA_PARTITIONER_PACKAGES = (
    "org.apache.kafka.clients.producer.",
    "org.apache.kafka.clients.producer.internals.",
)

JAVA_PARTITIONERS: dict[str, JavaPartitioner] = {
    "DefaultPartitioner": JavaPartitioner(None),
    "BuiltInPartitioner": JavaPartitioner(None),
    "UniformStickyPartitioner": JavaPartitioner(None, ignores_keys=True),
    "RoundRobinPartitioner": JavaPartitioner("RoundRobinPartitioner"),
}


#: librdkafka's partitioners and those of our own (``records.partitioning.key_rules``), which have
#: no package.
KEY_PARTITIONERS: tuple[str, ...] = tuple(
    _names("""
        consistent consistent_random murmur2 murmur2_random fnv1a fnv1a_random random
        murmur3 iceberg_bucket iceberg_bucket_long
        """)
)


def java_partitioner(name: str) -> JavaPartitioner | None:
    """The partitioner of a class name with or without its package, or of a name in
    :data:`KEY_PARTITIONERS`; None when it is not known.
    """
    if name in KEY_PARTITIONERS:
        return JavaPartitioner(name)
    package, _, short = name.rpartition(".")
    if package and f"{package}." not in JAVA_PARTITIONER_PACKAGES:
        return None
    return JAVA_PARTITIONERS.get(short)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose names these are, and what to do about one. ``in_files``: a client's properties file
    may have them as well as a producer's, so a line of theirs is skipped, by name.
    """

    component: str
    instead: str
    names: frozenset[str] = frozenset()
    beginnings: tuple[str, ...] = ()
    in_files: bool = False

    def owns(self, key: str) -> bool:
        return key in self.names or (
            key.startswith(self.beginnings) and nearest_name(key, SINK_OPTIONS, _MISSPELT) is None
        )


#: So near to an option of ours that it is meant, although others have names with its beginning.
_MISSPELT = 0.9

_REMOVE = "remove it from the options of the write"

OWNERS = (
    Owner("a Kafka source (read, readStream), not to a sink", _REMOVE, SOURCE_KEYS),
    Owner("a Kafka consumer; a producer has no such option", _REMOVE, CONSUMER_KEYS, in_files=True),
    Owner("an admin client of Kafka", _REMOVE, ADMIN_KEYS, in_files=True),
    Owner(
        "a client or serializer of a schema registry, and no option of this one",
        "remove it; valueFormat=avro, schema.registry.url and what goes with them are in"
        f" {page_address('formats')}",
        REGISTRY_KEYS,
        REGISTRY_BEGINNINGS,
        in_files=True,
    ),
    Owner(
        "Kafka Connect; here kafka.delivery.timeout.ms bounds how long what may succeed is sent"
        " again",
        "remove it; errors.tolerance=all and errors.deadletterqueue.topic.name say what becomes of"
        " rows that can't be sent",
        beginnings=("errors.retry.",),
        in_files=True,
    ),
    Owner("Kafka Connect", _REMOVE, CONNECT_KEYS, CONNECT_BEGINNINGS, in_files=True),
    Owner(
        "Kafka Streams",
        "use deliveryGuarantee=exactly-once",
        frozenset({"processing.guarantee"}),
    ),
    Owner(
        "Flink's Kafka sink",
        "here it is deliveryGuarantee, and the beginning of transactional ids is"
        " transactionalIdPrefix",
        frozenset({"sink.delivery-guarantee", "sink.transactional-id-prefix", "sink.semantic"}),
    ),
    Owner(
        "Databricks' own Kafka connector",
        "with kafka.sasl.mechanism=AWS_MSK_IAM, the IAMLoginModule of kafka.sasl.jaas.config takes"
        ' awsCredentialsProvider="package.module:name", a function that returns a session of the'
        " service credential",
        frozenset({"databricks.servicecredential"}),
    ),
    Owner(
        "Spark's older receivers and other sinks",
        "set maxRecordsPerSecond, or a producer quota on the brokers, which is obeyed, or"
        " maxOffsetsPerTrigger on the source of a stream",
        frozenset({"maxratepersecond", "maxratepertask"}),
    ),
)


@dataclass(frozen=True, slots=True)
class OptionSource:
    """The source of a name: ``prefix`` is that of a producer's option there, ``own`` whether the
    sink's own options are taken there, ``sink`` whether it is a write that reads them and not a
    producer by itself, ``where`` the file, or nothing.
    """

    prefix: str
    own: bool
    sink: bool
    where: str = ""


def is_left_out_of_files(key: str) -> bool:
    """Whether a line of this name, lower-cased and without prefix, is another client's."""
    return any(owner.in_files and owner.owns(key) for owner in OWNERS)


def refused_option(option: Option, shown: str, where: str = "") -> ConfigError:
    """The error for an option of Java's producer that the sink never takes."""
    if option.name == "transactional.id":
        return ConfigError(
            f"Option '{shown}'{where} is not supported by the sink: all tasks would share one id"
            " and fence each other",
            hint="set deliveryGuarantee=exactly-once, which makes an id for every task;"
            " transactionalIdPrefix begins them",
        )
    return ConfigError(option.note, hint=f"remove {shown}; cast the column")


def unknown_option(key: str, shown: str, place: OptionSource) -> ConfigError:
    """The error for a name that is not an option in its place. ``key`` is lower-cased, ``shown`` as
    its user wrote it. What may be a secret under a wrong name was shown by others.
    """
    error = _unknown_name(key, shown, place)
    if place.where or not may_be_secret(key):
        return error
    hint = f"{error.hint}; {REPLACE_IT}" if error.hint else REPLACE_IT
    return ConfigError(error.message, hint=hint, kind=error.kind)


def may_be_secret(key: str) -> bool:
    """Whether the lower-cased name is a secret's: ours, another client's, or misspelt."""
    name = key.removeprefix(PREFIX)
    if name not in PRODUCER_OPTIONS and _SECRET.search(name) is not None:
        return True
    option = PRODUCER_OPTIONS.get(nearest_name(name, PRODUCER_OPTIONS) or "")
    return option is not None and option.secret and not option.name.endswith(_PUBLIC)


def _unknown_name(key: str, shown: str, place: OptionSource) -> ConfigError:
    name = key.removeprefix(PREFIX)
    elsewhere = _known_elsewhere(name, shown, place)
    if elsewhere is not None:
        return elsewhere
    ours = _SINK_NAMES.get(name)
    option = PRODUCER_OPTIONS.get(name)
    if ours is not None and place.own:
        return _unknown(shown, place, f"write {ours}: the sink's own options take no prefix")
    if ours is not None:
        return ConfigError(
            f"Option '{shown}'{place.where} is the Spark sink's; a producer has no such option",
            hint="remove it, or write with format('kprod')",
        )
    if option is not None and option.status is Status.REMOVED:
        return _unknown(shown, place, f"{option.doc[:-1]}; {option.note}")
    if option is not None:
        return _unknown(
            shown,
            place,
            f"options of Kafka's producer take the prefix: {place.prefix}{name}"
            if place.prefix
            else f"write {name}: no prefix in this place",
        )
    nearest = _nearest(name, place)
    internal = any(key == own.lower() for own in SINK_OPTIONS)
    if nearest is None and place.where and not internal and _DOTTED.fullmatch(key) is None:
        return ConfigError(
            f"a line of the configFile{place.where} has a name that is no option's; it may be a"
            " secret, and is not shown",
            hint="is this the properties file that was meant?",
        )
    return _unknown(shown, place, nearest or f"every option: {page_address('options')}")


def _known_elsewhere(name: str, shown: str, place: OptionSource) -> ConfigError | None:
    """The error for a name, without prefix, that has a meaning somewhere else."""
    prefix, where = place.prefix, place.where
    option = PRODUCER_OPTIONS.get(name)
    if place.sink and option is not None and option.status is Status.REFUSED:
        return refused_option(option, shown, where)
    if place.sink and name.endswith(".serializer"):
        return ConfigError(
            f"Option '{shown}'{where} has no meaning here: columns are written as the bytes they"
            " are",
            hint=f"remove {shown}; cast the column",
        )
    if name in LIBRDKAFKA_KEYS:
        java = LIBRDKAFKA_KEYS[name]
        return ConfigError(
            f"Option '{shown}'{where} is librdkafka's name; options have Java's names here",
            hint=f"use {prefix}{java}"
            if java
            else "Java's producer has nothing like it: remove it",
            kind=Kind.FOREIGN_OPTION,
        )
    for owner in OWNERS:
        if owner.owns(name):
            return ConfigError(
                f"Option '{shown}'{where} belongs to {owner.component}",
                hint=owner.instead,
                kind=Kind.FOREIGN_OPTION,
            )
    rest = name.removeprefix("producer.").removeprefix("override.")
    if rest != name and rest in PRODUCER_OPTIONS:
        return _unknown(shown, place, f"write {prefix}{rest}: Connect's prefix means nothing here")
    return None


def _unknown(shown: str, place: OptionSource, hint: str) -> ConfigError:
    return ConfigError(
        f"Unknown option '{shown}'{place.where}", hint=hint, kind=Kind.UNKNOWN_OPTION
    )


#: What names of options, and an INI file's sections, look like; passwords, tokens and PEM don't.
_DOTTED = re.compile(r"[a-z][a-z0-9_-]{0,23}(\.[a-z0-9_-]{1,24}){1,6}|\[[a-z]{1,24}\]")
#: In names of secrets, whoever's they are.
_SECRET = re.compile(
    r"pass?w|pwd|secret|token$|credential|user\.info$|jaas|key\.pem$|(?:api|access)\.?key$"
)
#: Endings of options that are passwords by their type, and may be shown.
_PUBLIC = ("username", "certificates", "chain")

_SINK_NAMES = {o.name.lower(): o.name for o in SINK_OPTIONS.values() if not o.internal}


def _nearest(name: str, place: OptionSource) -> str | None:
    """The hint with the name that looks most like ``name``, which is in lower case."""
    options = [*PRODUCER_OPTIONS.values(), *(SINK_OPTIONS.values() if place.own else ())]
    names = [o.name for o in options if o.suggested or (o.for_producer and not place.sink)]
    found = nearest_name(name, names)
    if found is None:
        return None
    return f"did you mean {place.prefix if found in PRODUCER_OPTIONS else ''}{found}?"
