"""Names that somebody else owns: Spark, a Kafka source, a consumer, librdkafka, partitioners.

Owns: those names, what each would be called here, and the error for a name that is nobody's, with
the nearest one that exists. Never: an option of ours (``option_table``).

A name that is known to be meant for another place gets an answer that says so. That saves its user
the search for a typing error that isn't there.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_sink.errors import ConfigError, safe_text
from spark_kafka_sink.option_table import PRODUCER_OPTIONS, SINK_OPTIONS

#: What stands before a producer's option among the options of a Spark write.
PREFIX = "kafka."


def _names(text: str) -> list[str]:
    return text.split()


#: What Spark adds to the options of every write by itself, and one that its own Kafka sink lists
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


@dataclass(frozen=True, slots=True)
class JavaPartitioner:
    """What a partitioner class of the Java client is here.

    ``name`` is the one that ``records.partitioners`` knows it by, None the built-in one;
    ``ignores_keys`` is Java's own replacement for UniformStickyPartitioner (KIP-794).
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


#: librdkafka's partitioners and those of our own (``records.key_rules``), which have no package.
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


def unknown_producer_option(key: str, spelled: str, prefix: str) -> ConfigError:
    """The error for a name that is not an option of the producer.

    ``key`` is lower-cased and without ``prefix``; ``spelled`` is what the user wrote.
    """
    shown = safe_text(spelled)
    if key in CONSUMER_KEYS:
        return ConfigError(
            f"Option '{shown}' belongs to a Kafka consumer; a producer has no such option",
            hint="remove it from the options of the write",
        )
    if key in LIBRDKAFKA_KEYS:
        java = LIBRDKAFKA_KEYS[key]
        return ConfigError(
            f"Option '{shown}' is librdkafka's name; options have Java's names here",
            hint=f"use {prefix}{java}"
            if java
            else "Java's producer has nothing like it: remove it",
        )
    if not prefix and key.startswith(PREFIX) and key.removeprefix(PREFIX) in PRODUCER_OPTIONS:
        return _unknown(shown, f"write {key.removeprefix(PREFIX)}: no prefix in this place")
    own = {name.lower(): name for name in SINK_OPTIONS}.get(key) if prefix else None
    if own is not None:
        return _unknown(shown, f"write {own}: the sink's own options take no prefix")
    return _unknown(shown, _nearest(key, PRODUCER_OPTIONS, prefix))


def unknown_sink_option(key: str, spelled: str) -> ConfigError:
    """The error for a name without the prefix ``kafka.`` that is not one of the sink's own."""
    shown = safe_text(spelled)
    if key in SOURCE_KEYS:
        return ConfigError(
            f"Option '{shown}' belongs to a Kafka source (read, readStream), not to a sink",
            hint="remove it from the options of the write",
        )
    if key in PRODUCER_OPTIONS or key in LIBRDKAFKA_KEYS or key in CONSUMER_KEYS:
        name = LIBRDKAFKA_KEYS.get(key) or key
        return _unknown(shown, f"options of Kafka's producer take the prefix: {PREFIX}{name}")
    names = [*SINK_OPTIONS, *(PREFIX + name for name in PRODUCER_OPTIONS)]
    return _unknown(shown, _nearest(key, names, ""))


def _unknown(shown: str, hint: str) -> ConfigError:
    return ConfigError(f"Unknown option '{shown}'", hint=hint)


def _nearest(key: str, names: Iterable[str], prefix: str) -> str:
    """The hint with the name that looks most like ``key``, which is in lower case."""
    by_key = {name.lower(): name for name in names}
    # difflib's time is quadratic, and no name of ours is longer than this.
    close = difflib.get_close_matches(key[:100], by_key, n=1)
    if close:
        return f"did you mean {prefix}{by_key[close[0]]}?"
    return "docs/options.md lists every option"
