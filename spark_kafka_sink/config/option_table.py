"""The definitions of all options. docs/options.md is generated from them.

* :data:`PRODUCER_OPTIONS`: the producer's options under Java's names. Names, types, bounds and
  defaults come from ``ProducerConfig`` of Kafka 4.3.
* :data:`SINK_OPTIONS`: the sink's options in camelCase.

``cli/options.toml`` has the descriptions of the options. It also lists the defaults that differ
from Kafka's, with the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.base.security.import_paths import is_import_path
from spark_kafka_sink.base.suggestions import letters
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC, VALID_NAME, checked_topic_name
from spark_kafka_sink.config.changelog import CHANGELOGS, WORDS, ChangelogMode, checked_changelog
from spark_kafka_sink.config.named_columns import (
    ColumnFormat,
    OnNullKey,
    OnNullValue,
    SubjectStrategy,
    TimestampColumn,
    checked_columns,
)
from spark_kafka_sink.config.option import (
    INT_MAX,
    NOT_EMPTY,
    TXN_ADVICE,
    Option,
    OptionType,
    Rule,
    Status,
    alike,
    any_case,
    one_of,
    within,
)
from spark_kafka_sink.config.timestamp_pattern import checked_pattern

_T = OptionType
_NOT_NEGATIVE, _POSITIVE = within(0), within(1)
_TOPIC_NAME = Rule(VALID_NAME, checked_topic_name)
_ON, _OFF = True, False
_of_one_write = partial(Option, of_one_write=True)
_METRICS = "read the numbers of a write in its write report"

#: Partitioner classes of the Java client, and their counterparts here: a name in
#: ``records.partitioning.partitioners``, or None for the built-in partitioner.
JAVA_PARTITIONERS: dict[str, str | None] = {
    "DefaultPartitioner": None,
    "BuiltInPartitioner": None,
    "UniformStickyPartitioner": None,
    "RoundRobinPartitioner": "RoundRobinPartitioner",
}
_JAVAS = "org.apache.kafka.clients.producer"
_PACKAGES = ("", _JAVAS, f"{_JAVAS}.internals")
#: Java's own replacement for it is partitioner.ignore.keys (KIP-794).
IGNORES_KEYS = "UniformStickyPartitioner"

#: librdkafka's partitioners and our own partitioners (``records.partitioning.key_rules``), which
#: have no package.
KEY_PARTITIONERS: tuple[str, ...] = (
    "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random",
    "random", "murmur3", "iceberg_bucket", "iceberg_bucket_long",
)  # fmt: skip
#: The partitioners with sticky partitions for rows without a key; None is the built-in one.
STICKY_PARTITIONERS: tuple[str | None, ...] = (
    None, "consistent_random", "murmur2_random", "fnv1a_random", "random", "murmur3",
    "iceberg_bucket", "iceberg_bucket_long",
)  # fmt: skip
#: Every partitioner with a name; others are import paths.
PARTITIONER_NAMES = (*JAVA_PARTITIONERS, *KEY_PARTITIONERS)


def _partitioner(name: str) -> str:
    package, _, short = name.rpartition(".")
    if short in JAVA_PARTITIONERS and package in _PACKAGES:
        return short
    if name in KEY_PARTITIONERS or is_import_path(name):  # that is imported where it is used
        return name
    raise ValueError(
        "This partitioner is not known, and another one would put rows elsewhere; known are"
        f" {', '.join(PARTITIONER_NAMES)}, and the import path of your own class"
    )


def _removed(name: str, last: str, instead: str) -> Option:
    note = f"Removed from Kafka after {last}; {instead}"
    return Option(name, _T.STRING, None, None, Status.REMOVED, note)


_PRODUCER = (
    # Connections.
    Option("bootstrap.servers", _T.LIST, ()),
    Option("client.id", _T.STRING, ""),
    Option("client.dns.lookup", _T.STRING, "use_all_dns_ips",
           one_of("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    Option("connections.max.idle.ms", _T.LONG, 540_000),
    # Stricter than Java, which accepts a negative timeout and then never makes a connection.
    Option("socket.connection.setup.timeout.ms", _T.LONG, 10_000, _NOT_NEGATIVE),
    Option("socket.connection.setup.timeout.max.ms", _T.LONG, 30_000, _NOT_NEGATIVE),
    Option("send.buffer.bytes", _T.INT, 131_072, within(-1)),
    Option("receive.buffer.bytes", _T.INT, 32_768, within(-1)),
    Option("reconnect.backoff.ms", _T.LONG, 50, _NOT_NEGATIVE),
    Option("reconnect.backoff.max.ms", _T.LONG, 1_000, _NOT_NEGATIVE),
    Option("security.protocol", _T.STRING, "PLAINTEXT",
           one_of("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT", same=any_case)),
    # Delivery.
    Option("acks", _T.STRING, "all", one_of("all", "-1", "0", "1")),
    Option("enable.idempotence", _T.BOOLEAN, _ON),
    Option("retries", _T.INT, INT_MAX, within(0, INT_MAX)),
    Option("delivery.timeout.ms", _T.INT, 120_000, _NOT_NEGATIVE),
    Option("request.timeout.ms", _T.INT, 30_000, _NOT_NEGATIVE),
    Option("max.block.ms", _T.LONG, 60_000, _NOT_NEGATIVE),
    Option("max.in.flight.requests.per.connection", _T.INT, 5, _POSITIVE),
    Option("retry.backoff.ms", _T.LONG, 100, _NOT_NEGATIVE),
    Option("retry.backoff.max.ms", _T.LONG, 1_000, _NOT_NEGATIVE),
    # Batches.
    Option("batch.size", _T.INT, 524_288, _NOT_NEGATIVE),
    Option("linger.ms", _T.LONG, 5, _NOT_NEGATIVE),
    Option("buffer.memory", _T.LONG, 33_554_432, _NOT_NEGATIVE),
    Option("max.request.size", _T.INT, 1_048_576, _NOT_NEGATIVE),
    Option("compression.type", _T.STRING, "none", one_of("none", "gzip", "snappy", "lz4", "zstd")),
    Option("compression.gzip.level", _T.INT, -1, within(1, 9, -1)),
    Option("compression.lz4.level", _T.INT, 9, within(1, 17)),
    Option("compression.zstd.level", _T.INT, 3, within(-131_072, 22)),
    # Partitions.
    Option("partitioner.class", _T.CLASS, None,
           Rule("a partitioner's name, or an import path", _partitioner, PARTITIONER_NAMES)),
    Option("partitioner.ignore.keys", _T.BOOLEAN, _OFF),
    Option("partitioner.adaptive.partitioning.enable", _T.BOOLEAN, _OFF),
    Option("partitioner.availability.timeout.ms", _T.LONG, 0, _NOT_NEGATIVE),
    Option("partitioner.rack.aware", _T.BOOLEAN, _OFF),
    Option("client.rack", _T.STRING, ""),
    # Metadata.
    Option("metadata.max.age.ms", _T.LONG, 300_000, _NOT_NEGATIVE),
    Option("metadata.max.idle.ms", _T.LONG, 300_000, within(5_000)),
    Option("metadata.recovery.strategy", _T.STRING, "rebootstrap",
           one_of("REBOOTSTRAP", "NONE", same=any_case)),
    Option("metadata.recovery.rebootstrap.trigger.ms", _T.LONG, 300_000, _NOT_NEGATIVE),
    Option("metadata.cluster.check.enable", _T.BOOLEAN, _OFF, None, Status.NO_MEANING,
           "this package does not make this check"),
    # Transactions.
    Option("transactional.id", _T.STRING, None, NOT_EMPTY, Status.REFUSED,
           "All tasks would share one id and fence each other.", for_producer=True),
    Option("transaction.timeout.ms", _T.INT, 60_000, exactly_once_default=900_000),
    Option("transaction.two.phase.commit.enable", _T.BOOLEAN, _OFF, None, Status.LATER_REFUSED,
           "brokers offer two-phase commit only with unstable.api.versions.enable, which is"
           " not for production"),
    # Interceptors and metrics.
    Option("interceptor.classes", _T.LIST, ()),
    Option("metrics.num.samples", _T.INT, 2, _POSITIVE),
    Option("metrics.sample.window.ms", _T.LONG, 30_000, _NOT_NEGATIVE),
    # Without an effect.
    Option("metric.reporters", _T.LIST, (), None, Status.NO_MEANING, _METRICS),
    Option("metrics.recording.level", _T.STRING, "INFO", one_of("INFO", "DEBUG", "TRACE"),
           Status.NO_MEANING, _METRICS),
    Option("enable.metrics.push", _T.BOOLEAN, _ON, None, Status.NO_MEANING,
           "this package pushes no metrics to brokers"),
    Option("config.providers", _T.LIST, (), None, Status.NO_MEANING,
           "${env:NAME}, ${file:/path} and ${file:/path:key} need no provider"),
    Option("bootstrap.resolve.timeout.ms", _T.LONG, 0, None, Status.NO_MEANING,
           "here names are looked up when a connection is opened"),
    Option("buffer.memory.allocation.strategy", _T.STRING, "full", None, Status.NO_MEANING,
           "here a batch takes only as much memory as its rows need"),
    Option("security.providers", _T.STRING, None, None, Status.NO_MEANING,
           "the producer is Python code and uses no JVM"),
    # Removed from Kafka.
    _removed("block.on.buffer.full", "0.10",
             "use max.block.ms to limit the wait for room in buffer.memory"),
    _removed("metadata.fetch.timeout.ms", "0.10", "use max.block.ms"),
    _removed("timeout.ms", "0.10", "use request.timeout.ms"),
    _removed("total.memory.bytes", "0.8.1", "use buffer.memory"),
    _removed("max.partition.bytes", "0.8.1", "use batch.size"),
    _removed("enable.jmx", "0.8.1", _METRICS),
    _removed("auto.include.jmx.reporter", "3.9", _METRICS),
    _removed("internal.auto.downgrade.txn.commit", "3.9",
             "remove it: it was internal to Kafka Streams"),
    # Refused.
    Option("key.serializer", _T.CLASS, None, None, Status.REFUSED,
           "Kafka option 'key.serializer' is not supported as keys are serialized with"
           " ByteArraySerializer.",
           for_producer=True),
    Option("value.serializer", _T.CLASS, None, None, Status.REFUSED,
           "Kafka option 'value.serializer' is not supported as value are serialized with"
           " ByteArraySerializer.",
           for_producer=True),
)  # fmt: skip

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
GSSAPI: Final = "GSSAPI"
#: Every supported mechanism.
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)

_JVM = "TLS is done by OpenSSL here"
_KINIT = "the machine's Kerberos libraries and kinit do that"
_BROKERS = "this package leaves the check of a token to the broker"
_STORE = one_of("PEM", "PKCS12", "JKS")


def _assertion(names: str, type_: OptionType = _T.STRING) -> Iterator[Option]:
    names = " ".join(f"sasl.oauthbearer.assertion.{name}" for name in names.split())
    instead = "use client id and secret, or name your class in sasl.login.callback.handler.class"
    return alike(names, type_, Status.LATER_REFUSED, instead)


SECURITY_OPTIONS = (
    Option("ssl.truststore.location", _T.STRING, None),
    Option("ssl.truststore.type", _T.STRING, None, _STORE),
    Option("ssl.truststore.password", _T.PASSWORD, None),
    Option("ssl.truststore.certificates", _T.PASSWORD, None),
    Option("ssl.keystore.location", _T.STRING, None),
    Option("ssl.keystore.type", _T.STRING, None, _STORE),
    Option("ssl.keystore.password", _T.PASSWORD, None),
    Option("ssl.keystore.key", _T.PASSWORD, None),
    Option("ssl.keystore.certificate.chain", _T.PASSWORD, None),
    Option("ssl.key.password", _T.PASSWORD, None),
    Option("ssl.endpoint.identification.algorithm", _T.STRING, "https",
           one_of("https", same=any_case, empty="no check")),
    Option("ssl.enabled.protocols", _T.LIST, None),
    Option("ssl.cipher.suites", _T.LIST, None),
    *alike("ssl.protocol ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm"
           " ssl.secure.random.implementation", _T.STRING, Status.NO_MEANING, _JVM),
    Option("ssl.engine.factory.class", _T.CLASS, None, None, Status.LATER_REFUSED,
           "set the options ssl.* instead of the class"),
    Option("sasl.mechanism", _T.STRING, None, one_of(*MECHANISMS, same=any_case, empty="")),
    Option("sasl.jaas.config", _T.PASSWORD, None),
    Option("sasl.username", _T.PASSWORD, None),
    Option("sasl.password", _T.PASSWORD, None),
    Option("sasl.client.callback.handler.class", _T.CLASS, None),
    Option("sasl.login.callback.handler.class", _T.CLASS, None),
    Option("sasl.oauthbearer.jwt.retriever.class", _T.CLASS, None),
    Option("sasl.oauthbearer.token.endpoint.url", _T.STRING, None),
    Option("sasl.oauthbearer.client.credentials.client.id", _T.STRING, None),
    Option("sasl.oauthbearer.client.credentials.client.secret", _T.PASSWORD, None),
    Option("sasl.oauthbearer.scope", _T.STRING, None),
    Option("sasl.oauthbearer.header.urlencode", _T.BOOLEAN, _OFF),
    Option("sasl.login.connect.timeout.ms", _T.INT, 10_000, _POSITIVE),
    Option("sasl.login.read.timeout.ms", _T.INT, 10_000, _POSITIVE),
    Option("sasl.login.retry.backoff.ms", _T.LONG, 100, _POSITIVE),
    Option("sasl.login.retry.backoff.max.ms", _T.LONG, 10_000, _POSITIVE),
    Option("sasl.login.refresh.window.factor", _T.DOUBLE, 0.8, within(0.5, 1.0)),
    Option("sasl.login.refresh.window.jitter", _T.DOUBLE, 0.05, within(0.0, 0.25)),
    Option("sasl.login.refresh.min.period.seconds", _T.SHORT, 60, within(0, 900)),
    Option("sasl.login.refresh.buffer.seconds", _T.SHORT, 300, within(0, 3600)),
    Option("sasl.kerberos.service.name", _T.STRING, None),
    *alike("sasl.kerberos.kinit.cmd", _T.STRING, Status.NO_MEANING, _KINIT),
    *alike("sasl.kerberos.min.time.before.relogin", _T.LONG, Status.NO_MEANING, _KINIT),
    *alike("sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor", _T.DOUBLE,
           Status.NO_MEANING, _KINIT),
    *alike("sasl.oauthbearer.jwt.validator.class", _T.CLASS, Status.NO_MEANING, _BROKERS),
    *alike("sasl.oauthbearer.expected.audience", _T.LIST, Status.NO_MEANING, _BROKERS),
    *alike("sasl.oauthbearer.clock.skew.seconds", _T.INT, Status.NO_MEANING, _BROKERS),
    *alike("sasl.oauthbearer.expected.issuer sasl.oauthbearer.scope.claim.name"
           " sasl.oauthbearer.sub.claim.name sasl.oauthbearer.jwks.endpoint.url", _T.STRING,
           Status.NO_MEANING, _BROKERS),
    *alike("sasl.oauthbearer.jwks.endpoint.refresh.ms"
           " sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
           " sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _T.LONG, Status.NO_MEANING,
           _BROKERS),
    Option("sasl.login.class", _T.CLASS, None, None, Status.LATER_REFUSED,
           "to get OAUTHBEARER tokens with your own code, name a Python class in"
           " sasl.login.callback.handler.class"),
    *_assertion("algorithm claim.aud claim.iss claim.sub file private.key.file template.file"),
    *_assertion("claim.exp.seconds claim.nbf.seconds", _T.INT),
    *_assertion("claim.jti.include", _T.BOOLEAN),
    *_assertion("private.key.passphrase", _T.PASSWORD),
)  # fmt: skip

URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"  # noqa: S105 - a name
ENDPOINT: Final = "bearer.auth.issuer.endpoint.url"
TIMEOUT: Final = "schema.registry.request.timeout.ms"
REGISTRY: Final = "schema.registry."
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"
SUBJECTS: Final = "io.confluent.kafka.serializers.subject."
_ID_PACKAGE: Final = "io.confluent.kafka.serializers.schema.id."
_ID_AT = IN_PREFIX, IN_HEADER = "PrefixSchemaIdSerializer", "HeaderSchemaIdSerializer"

_STRATEGIES: Final = one_of(
    *SubjectStrategy, *(f"{SUBJECTS}{strategy}" for strategy in SubjectStrategy)
)


def _of(part: str) -> tuple[Option, ...]:
    """The schema options for one part of a record. ``part`` is ``key`` or ``value``."""
    return (
        _of_one_write(f"{part}Schema", _T.STRING, None, NOT_EMPTY),
        _of_one_write(f"{part}SchemaName", _T.STRING, None, NOT_EMPTY),
        _of_one_write(f"{part}.subject.name.strategy", _T.CLASS, "TopicNameStrategy", _STRATEGIES),
        _of_one_write(f"{part}.schema.id.serializer", _T.CLASS, IN_PREFIX,
                      one_of(*(of + kind for of in ("", _ID_PACKAGE) for kind in _ID_AT))),
    )  # fmt: skip


REGISTRY_OPTIONS: Final = (
    Option(URL, _T.STRING, None),
    Option("auto.register.schemas", _T.BOOLEAN, _OFF),
    Option("use.latest.version", _T.BOOLEAN, _OFF),
    Option("use.schema.id", _T.INT, None, within(1, INT_MAX)),
    Option("normalize.schemas", _T.BOOLEAN, _ON),
    Option("basic.auth.credentials.source", _T.STRING, "USER_INFO", one_of("USER_INFO")),
    Option(USER_INFO, _T.PASSWORD, None),
    Option("bearer.auth.credentials.source", _T.STRING, None,
           one_of("STATIC_TOKEN", "OAUTHBEARER", same=any_case)),
    Option(TOKEN, _T.PASSWORD, None),
    *alike(f"{ENDPOINT} bearer.auth.client.id"),
    Option("bearer.auth.client.secret", _T.PASSWORD, None),
    *alike("bearer.auth.scope bearer.auth.logical.cluster bearer.auth.identity.pool.id"),
    Option(TIMEOUT, _T.INT, 10_000, _POSITIVE),
    *(replace(one, name=REGISTRY + one.name) for one in SECURITY_OPTIONS
      if one.name.startswith("ssl.") and one.name != _ALGORITHM
      and one.status in (Status.HONOURED, Status.NO_MEANING)),
    Option(f"{REGISTRY}{_ALGORITHM}", _T.STRING, "https", one_of("https", same=any_case)),
)  # fmt: skip

SCHEMA_OPTIONS: Final = (
    *_of("value"), *_of("key"), _of_one_write("schemaTopics", _T.LIST, ()), *REGISTRY_OPTIONS,
)  # fmt: skip
#: Confluent's, which other clients' files have too: ours are without dots.
REGISTRY_NAMES: Final = frozenset(one.name for one in SCHEMA_OPTIONS if "." in one.name)

_LISTED, _TICKS = "names of columns, separated by commas", "; a name with a comma needs backticks"
_COLUMNS = Rule(f"{_LISTED}{_TICKS}", partial(checked_columns, all_too=False))
_COLUMNS_OR_ALL = Rule(
    f"{_LISTED}, or `*`, or `name.*`{_TICKS}", partial(checked_columns, all_too=True)
)
_FORMAT = one_of(*ColumnFormat, same=any_case)
_DATE = "a pattern of `yyyy`, `MM`, `dd`, `HH`, `mm`, `ss`, `SSS`"
_LETTERS = f"{_DATE}, signs such as `:`, and quoted text"
_LOCAL_PATTERN = Rule(_LETTERS, partial(checked_pattern, has_zone=False))
_PATTERN = Rule(f"{_LETTERS}; `XXX` for the offset", partial(checked_pattern, has_zone=True))

_SINK = (
    _of_one_write("topic", _T.STRING, None, _TOPIC_NAME),
    Option("deliveryGuarantee", _T.STRING, "at-least-once",
           one_of("at-least-once", "none", "exactly-once", same=letters)),
    _of_one_write("valueColumns", _T.STRING, None, _COLUMNS_OR_ALL),
    _of_one_write("valueFormat", _T.STRING, ColumnFormat.JSON, _FORMAT),
    _of_one_write("keyColumns", _T.STRING, None, _COLUMNS),
    _of_one_write("keyFormat", _T.STRING, ColumnFormat.JSON, _FORMAT),
    _of_one_write("headersColumns", _T.STRING, None, _COLUMNS),
    _of_one_write("onNullKey", _T.STRING, OnNullKey.NO_KEY, one_of(*OnNullKey, same=any_case)),
    _of_one_write("onNullValue", _T.STRING, OnNullValue.TOMBSTONE,
                  one_of(*OnNullValue, same=any_case)),
    _of_one_write("changelog", _T.STRING, None, Rule(WORDS, checked_changelog, tuple(CHANGELOGS))),
    _of_one_write("changelog.mode", _T.STRING, ChangelogMode.UPSERT,
                  one_of(*ChangelogMode, same=any_case)),
    _of_one_write("jsonIgnoreNullFields", _T.BOOLEAN, _ON),
    _of_one_write("jsonPlainDecimals", _T.BOOLEAN, _OFF),
    _of_one_write("jsonTimestampFormat", _T.STRING, None, _PATTERN),
    _of_one_write("jsonTimestampNtzFormat", _T.STRING, None, _LOCAL_PATTERN),
    _of_one_write("timestampColumn", _T.STRING, TimestampColumn.USE,
                  one_of(*TimestampColumn, same=any_case)),
    Option("maxRecordsPerSecond", _T.LONG, None, _POSITIVE),
    Option("maxBytesPerSecond", _T.LONG, None, _POSITIVE),
    Option("tasksAtOnce", _T.INT, None, _POSITIVE),
    Option("connectionsPerSecond", _T.INT, None, _POSITIVE),
    Option("maxLeadersPerTask", _T.INT, None, within(1, 1000)),
    Option("preflight", _T.STRING, None, one_of("required", "warn", "off", same=any_case)),
    Option("reportPath", _T.STRING, None, NOT_EMPTY),
    Option("reportTopic", _T.STRING, None, _TOPIC_NAME),
    Option("reportListeners", _T.LIST, ()),
    Option("progressListeners", _T.LIST, ()),
    Option("progressTopic", _T.STRING, None, _TOPIC_NAME),
    Option("transactionalIdPrefix", _T.STRING, None, NOT_EMPTY),
    Option("txnAppId", _T.STRING, None, NOT_EMPTY),
    Option("txnVersion", _T.LONG, None, _NOT_NEGATIVE, advice=TXN_ADVICE),
    Option("verifyReplays", _T.BOOLEAN, _ON),
    Option("offsetsGroup", _T.STRING, None, NOT_EMPTY),
    Option("offsetsGroupInUse", _T.STRING, "refuse", one_of("refuse", "allow", same=any_case)),
    # The run that writes: set by foreach_batch and transaction.
    Option("txnContext", _T.STRING, None, NOT_EMPTY, internal=True),
    # The generation of the key when a step was recorded: set by backfill.
    Option("txnGeneration", _T.LONG, None, _NOT_NEGATIVE, internal=True),
    # The session's settings, which `register(spark)` makes each writer pass.
    _of_one_write("sessionTimeZone", _T.STRING, None, internal=True),
    _of_one_write("sessionIgnoreNullFields", _T.BOOLEAN, None, internal=True),
    # Spark's own, where a micro-batch's offsets are found.
    Option("checkpointLocation", _T.STRING, None, internal=True),
    Option("commitLogTopic", _T.STRING, COMMIT_LOG_TOPIC, _TOPIC_NAME),
    Option("configFile", _T.STRING, None, NOT_EMPTY),
)  # fmt: skip


#: Names are Kafka Connect's; those that it does not have are at the end.
DEAD_LETTER_OPTIONS: Final = (
    Option("errors.tolerance", _T.STRING, "none", one_of("none", "all", same=any_case)),
    Option("errors.deadletterqueue.topic.name", _T.STRING, None, _TOPIC_NAME),
    Option("errors.dead.letter.queue.topic.name", _T.STRING, None, _TOPIC_NAME),
    Option("errors.deadletterqueue.topic.replication.factor", _T.SHORT, None, within(1, 2**15 - 1)),
    Option("errors.deadletterqueue.context.headers.enable", _T.BOOLEAN, _ON),
    Option("errors.log.enable", _T.BOOLEAN, _OFF),
    Option("errors.log.include.messages", _T.BOOLEAN, _OFF),
    Option("errors.max.records", _T.LONG, None, _NOT_NEGATIVE),
    Option("errors.max.fraction", _T.DOUBLE, None, within(0, 1)),
    Option("errors.deadletterqueue.max.value.bytes", _T.INT, 65_536, within(0, INT_MAX)),
)  # fmt: skip


#: Options of the producer by Java's name, which is in lower case throughout.
PRODUCER_OPTIONS = {one.name: one for one in (*_PRODUCER, *SECURITY_OPTIONS)}

#: The sink's own options by their name in camelCase.
SINK_OPTIONS = {one.name: one for one in (*_SINK, *DEAD_LETTER_OPTIONS, *SCHEMA_OPTIONS)}

#: A word that may be the name of a producer's option.
_NAME: Final = re.compile(r"(?<![\w.])[a-z]+(?:\.[a-z0-9]+)*(?!\w)")


def with_prefix(text: str, prefix: str) -> str:
    """Puts ``prefix`` before each name of a producer's option in ``text``."""
    return renamed(text, lambda name: prefix + name)


def renamed(text: str, name_of: Callable[[str], str]) -> str:
    """Replaces each name of a producer's option in ``text`` by the result of ``name_of`` for this
    name.
    """
    return _NAME.sub(lambda at: name_of(at[0]) if at[0] in PRODUCER_OPTIONS else at[0], text)


def renamed_texts(error: KafkaError, name_of: Callable[[str], str]) -> tuple[str, str | None]:
    """Returns the message and the hint of ``error``. In both, each name of a producer's option is
    replaced by the result of ``name_of`` for this name.
    """
    hint = None if error.hint is None else renamed(error.hint, name_of)
    return renamed(error.message, name_of), hint


#: Families of names that Java accepts by prefix.
NO_MEANING_PREFIXES: dict[str, str] = {
    "metrics.context.": _METRICS,
    "config.providers.": "references need no provider here",
}
