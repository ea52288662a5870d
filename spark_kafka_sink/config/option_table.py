"""Every option, declared once: the producer's under Java's names, and our own in camelCase.

Owns: the two tables :data:`PRODUCER_OPTIONS` and :data:`SINK_OPTIONS`, and the names of
partitioners. Never: the meaning of two options together (``cross_checks``), or names of other
components (``foreign_options.toml``).

Names, types, bounds and defaults are those of Kafka 4.3's ``ProducerConfig``; where a default
differs, the row says why. One bound is ours: Java takes a negative connection setup timeout, with
which no connection is ever made. docs/options.md is generated from these tables.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.config.dead_letter_options import (
    CONTEXT,
    LOG,
    MAX_FRACTION,
    MAX_RECORDS,
    MAX_VALUE,
    MESSAGES,
    REPLICAS,
    TOLERANCE,
    TOPIC,
    TOPIC_IN_STREAMS,
)
from spark_kafka_sink.config.named_columns import (
    WITH_SCHEMA,
    ColumnFormat,
    ColumnNames,
    OnNullValue,
    SubjectStrategy,
)
from spark_kafka_sink.config.option import (
    INT_MAX,
    AtLeast,
    Between,
    BetweenOr,
    Importance,
    NonEmpty,
    OneOf,
    OneOfAnyCase,
    OneOfAnySpelling,
    Option,
    OptionType,
    Status,
    TopicName,
)

_T = OptionType
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_ZERO = AtLeast(0)
_ON, _OFF = True, False

_CONNECTION = (
    Option("bootstrap.servers", _T.LIST, (), _HIGH,
           "Where to find the cluster: `host:port,host:port,...`. Some brokers are enough, the"
           " others are found through them. An IPv6 address needs brackets: `[::1]:9092`."
           " Required."),
    Option("client.id", _T.STRING, "", _MEDIUM,
           "The name that brokers see in request logs, quotas and metrics. Empty: one is made up."),
    Option("client.dns.lookup", _T.STRING, "use_all_dns_ips", _MEDIUM,
           "What to do with a host name that has several addresses: try them in turn"
           " (`use_all_dns_ips`), or look up the canonical names of the bootstrap addresses first"
           " (`resolve_canonical_bootstrap_servers_only`).",
           OneOf(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"))),
    Option("connections.max.idle.ms", _T.LONG, 540_000, _MEDIUM,
           "A connection without traffic is closed after this time. Brokers close theirs after ten"
           " minutes. A negative value never closes."),
    Option("socket.connection.setup.timeout.ms", _T.LONG, 10_000, _MEDIUM,
           "How long the first attempt to connect may take; each failure in a row doubles it.",
           _ZERO),
    Option("socket.connection.setup.timeout.max.ms", _T.LONG, 30_000, _MEDIUM,
           "The longest that an attempt to connect may take, however many have failed.", _ZERO),
    Option("send.buffer.bytes", _T.INT, 131_072, _MEDIUM,
           "TCP send buffer (SO_SNDBUF). -1: the operating system decides.", AtLeast(-1)),
    Option("receive.buffer.bytes", _T.INT, 32_768, _MEDIUM,
           "TCP receive buffer (SO_RCVBUF). -1: the operating system decides.", AtLeast(-1)),
    Option("reconnect.backoff.ms", _T.LONG, 50, _LOW,
           "Pause before connecting again to a broker; each failure in a row doubles it. When only"
           " this one of the pair is set, the pause stays the same.", _ZERO),
    Option("reconnect.backoff.max.ms", _T.LONG, 1_000, _LOW,
           "The longest pause before connecting again.", _ZERO),
    Option("security.protocol", _T.STRING, "PLAINTEXT", _MEDIUM,
           "How to talk to brokers: PLAINTEXT, SSL (which is TLS), and with authentication by SASL"
           " SASL_PLAINTEXT and SASL_SSL.",
           OneOfAnyCase(("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"))),
)  # fmt: skip

_DELIVERY = (
    Option("acks", _T.STRING, "all", _LOW,
           "Which replicas must have a batch before it is acknowledged: all in-sync ones (`all` or"
           " `-1`), the leader (`1`), or none (`0`). Anything but `all` switches idempotence off"
           " and means deliveryGuarantee=none.", OneOf(("all", "-1", "0", "1"))),
    Option("enable.idempotence", _T.BOOLEAN, _ON, _LOW,
           "Brokers drop a batch that they got twice because its answer was lost. Needs acks=all,"
           " retries above 0 and at most 5 requests in flight; when one of the first two says"
           " otherwise and this option is not set, idempotence is off."),
    Option("retries", _T.INT, INT_MAX, _HIGH,
           "How often a batch is sent again after a failure that may pass. Better left alone:"
           " delivery.timeout.ms is the limit that matters.", Between(0, INT_MAX)),
    Option("delivery.timeout.ms", _T.INT, 120_000, _MEDIUM,
           "How long a batch may take from its first row to the broker's answer, retries included."
           " When it is over, the task fails. At least linger.ms + request.timeout.ms.", _ZERO),
    Option("request.timeout.ms", _T.INT, 30_000, _MEDIUM,
           "How long to wait for the answer to one request before the connection is closed and the"
           " request is sent again.", _ZERO),
    Option("max.block.ms", _T.LONG, 60_000, _MEDIUM,
           "How long a task waits for a topic's metadata. When you set it, it also limits the wait"
           " for room in buffer.memory; else delivery.timeout.ms limits that wait.", _ZERO,
           java_default="60000, for both waits",
           why="a broker that pauses for a minute must not fail a task that may wait two"),
    Option("max.in.flight.requests.per.connection", _T.INT, 5, _LOW,
           "Requests in flight to one broker. At most 5 with idempotence. 1 keeps order"
           " without idempotence.", AtLeast(1)),
    Option("retry.backoff.ms", _T.LONG, 100, _LOW,
           "Pause before a failed request is sent again; each failure in a row doubles it.", _ZERO),
    Option("retry.backoff.max.ms", _T.LONG, 1_000, _LOW,
           "The longest pause before a failed request is sent again.", _ZERO),
)  # fmt: skip

_BATCHING = (
    Option("batch.size", _T.INT, 524_288, _MEDIUM,
           "Bytes of a batch of one partition (after compression, estimated). 0 means one record a"
           " batch. Never more than buffer.memory.", _ZERO, java_default="16384",
           why="a Spark task passes thousands of rows at once, and brokers are fastest with"
           " batches of 256 to 512 KiB"),
    Option("linger.ms", _T.LONG, 5, _MEDIUM,
           "How long a batch that is not full waits for more rows. It counts only while the task"
           " waits for Spark's next rows; at the end of the input nothing lingers. With 0, small"
           " Arrow batches are not joined either.", _ZERO),
    Option("buffer.memory", _T.LONG, 33_554_432, _HIGH,
           "Bytes of batches that wait or are in flight, per task. When they are used up, the task"
           " waits for brokers.", _ZERO),
    Option("max.request.size", _T.INT, 1_048_576, _MEDIUM,
           "Upper limit of one record before compression, and of a batch. The topic's"
           " max.message.bytes is the broker's own limit. A request with several batches may have"
           " up to 4 MiB.", _ZERO),
    Option("compression.type", _T.STRING, "none", _HIGH,
           "How batches are compressed.", OneOf(("none", "gzip", "snappy", "lz4", "zstd"))),
    Option("compression.gzip.level", _T.INT, -1, _MEDIUM,
           "Level of gzip; -1 is the library's own default.", BetweenOr(1, 9, -1)),
    Option("compression.lz4.level", _T.INT, 9, _MEDIUM,
           "Level of lz4. As in Java, 9 is the fast compressor, not a high level.",
           Between(1, 17)),
    Option("compression.zstd.level", _T.INT, 3, _MEDIUM,
           "Level of zstd.", Between(-131_072, 22)),
)  # fmt: skip

_PARTITIONING = (
    Option("partitioner.class", _T.CLASS, None, _MEDIUM,
           "How the partition of a row without one is chosen. Unset: the hash of the key (equal to"
           " Java's), or for null keys one partition until it has had batch.size bytes, then"
           " another. Some classes of the Java client, librdkafka's partitioners and Iceberg's"
           " bucket are understood by name, see the end of this page; others are refused, because"
           " without them rows would go elsewhere. Or the import path of a class of your own"
           " (`package.module:Name`), made without arguments in each task, with a method"
           " `partition(topic, keys, values, partition_count, available)` that gets columns and"
           " returns a partition for each row."),
    Option("partitioner.ignore.keys", _T.BOOLEAN, _OFF, _MEDIUM,
           "Place rows with a key like rows without one."),
    Option("partitioner.adaptive.partitioning.enable", _T.BOOLEAN, _OFF, _LOW,
           "For rows without a key: partitions with fewer batches queued get more.",
           java_default="true", why="a task is too short for its queues to show much"),
    Option("partitioner.availability.timeout.ms", _T.LONG, 0, _LOW,
           "For rows without a key: leave out partitions whose broker has taken nothing for this"
           " time, with partitioner.adaptive.partitioning.enable. 0: off.", _ZERO),
    Option("partitioner.rack.aware", _T.BOOLEAN, _OFF, _LOW,
           "For rows without a key: only partitions led in `client.rack`, while there are any"
           " (Kafka 4.4)."),
    Option("client.rack", _T.STRING, "", _LOW,
           "The rack of this client, for partitioner.rack.aware."),
)  # fmt: skip


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
KEY_PARTITIONERS: tuple[str, ...] = (
    "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random",
    "random", "murmur3", "iceberg_bucket", "iceberg_bucket_long",
)  # fmt: skip


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


_METADATA = (
    Option("metadata.max.age.ms", _T.LONG, 300_000, _LOW,
           "Metadata is refreshed after this time, even without an error.", _ZERO),
    Option("metadata.max.idle.ms", _T.LONG, 300_000, _LOW,
           "Metadata of a topic that was not written to for this time is no longer refreshed.",
           AtLeast(5_000)),
    Option("metadata.recovery.strategy", _T.STRING, "rebootstrap", _LOW,
           "What to do when no known broker can be reached: start again from bootstrap.servers"
           " (`rebootstrap`), or keep trying (`none`).", OneOfAnyCase(("REBOOTSTRAP", "NONE"))),
    Option("metadata.recovery.rebootstrap.trigger.ms", _T.LONG, 300_000, _LOW,
           "Start again from bootstrap.servers when metadata could not be fetched for this time.",
           _ZERO),
    Option("metadata.cluster.check.enable", _T.BOOLEAN, _OFF, _LOW,
           "Check that a broker belongs to the cluster that was bootstrapped (Kafka 4.4).",
           None, Status.LATER_IGNORED, "that check is not made",
           java_default="true", why="that check is not made in this version"),
)  # fmt: skip

_TRANSACTIONS = (
    Option("transactional.id", _T.STRING, None, _LOW,
           "The name under which a producer writes transactions. Never an option of the sink: all"
           " tasks would share it and fence each other.",
           NonEmpty(), Status.REFUSED, "All tasks would share one id and fence each other.",
           for_producer=True),
    Option("transaction.timeout.ms", _T.INT, 60_000, _LOW,
           "How long a transaction may stay open before the broker aborts it. With"
           " deliveryGuarantee=exactly-once (without it: no effect) it is 900000 unless set: from"
           " the first row of the first task to the commit after the last one, and while a driver"
           " restarts. At most the broker's transaction.max.timeout.ms.",
           exactly_once_default=900_000),
    Option("transaction.two.phase.commit.enable", _T.BOOLEAN, _OFF, _LOW,
           "Transactions that never time out, ended by an outside coordinator (KIP-939).",
           None, Status.LATER_REFUSED, "the sink's own option twoPhaseCommit asks brokers for it"),
)  # fmt: skip

_METRICS = "there is no JMX here; the write report carries the numbers"

_INTERCEPTORS = (
    Option("interceptor.classes", _T.LIST, (), _LOW,
           "Python classes, as import paths (`package.module:Class`), that see all rows before they"
           " are sent, by columns, and every acknowledgement. They must be importable on the driver"
           " and on the executors, where they are made. See python-producer.md. Classes of the JVM"
           " can't run here."),
    Option("metrics.num.samples", _T.INT, 2, _LOW,
           "How many windows the rates and averages of metrics look back.", AtLeast(1)),
    Option("metrics.sample.window.ms", _T.LONG, 30_000, _LOW, "How long one of them is.", _ZERO),
)  # fmt: skip

_WITHOUT_EFFECT = (
    Option("metric.reporters", _T.LIST, (), _LOW, "Classes that get metrics.",
           None, Status.NO_MEANING, _METRICS),
    Option("metrics.recording.level", _T.STRING, "INFO", _LOW, "Which metrics are recorded.",
           OneOf(("INFO", "DEBUG", "TRACE")), Status.NO_MEANING, _METRICS),
    Option("enable.metrics.push", _T.BOOLEAN, _ON, _LOW, "Push client metrics (KIP-714).",
           None, Status.NO_MEANING, "client metrics are not pushed to brokers"),
    Option("config.providers", _T.LIST, (), _LOW, "Where `${...}` in values is looked up.",
           None, Status.NO_MEANING,
           "${env:NAME}, ${file:/path} and ${file:/path:key} are looked up without it"),
    Option("bootstrap.resolve.timeout.ms", _T.LONG, 0, _LOW,
           "Time limit of looking up bootstrap names (Kafka 4.4).",
           None, Status.NO_MEANING, "names are looked up when a connection is opened"),
    Option("buffer.memory.allocation.strategy", _T.STRING, "full", _LOW,
           "How Java takes buffers from its pool (Kafka 4.4).",
           None, Status.NO_MEANING, "a batch takes the bytes that it holds, no more"),
    Option("security.providers", _T.STRING, None, _LOW, "Security providers of the JVM.",
           None, Status.NO_MEANING, "there is no JVM here"),
)  # fmt: skip


def _removed(name: str, last: str, instead: str) -> Option:
    doc = f"Removed from Kafka after {last}."
    return Option(name, _T.STRING, None, _LOW, doc, None, Status.REMOVED, instead)


_REMOVED = (
    _removed("block.on.buffer.full", "0.10", "max.block.ms limits the wait for room"),
    _removed("metadata.fetch.timeout.ms", "0.10", "use max.block.ms"),
    _removed("timeout.ms", "0.10", "use request.timeout.ms"),
    _removed("total.memory.bytes", "0.8.1", "use buffer.memory"),
    _removed("max.partition.bytes", "0.8.1", "use batch.size"),
    _removed("enable.jmx", "0.8.1", _METRICS),
    _removed("auto.include.jmx.reporter", "3.9", _METRICS),
    _removed("internal.auto.downgrade.txn.commit", "3.9", "it was internal to Kafka Streams"),
)

_REFUSED = (
    Option("key.serializer", _T.CLASS, None, _HIGH, "Java's way to turn keys into bytes.",
           None, Status.REFUSED,
           "Kafka option 'key.serializer' is not supported as keys are serialized with"
           " ByteArraySerializer.", for_producer=True),
    Option("value.serializer", _T.CLASS, None, _HIGH, "Java's way to turn values into bytes.",
           None, Status.REFUSED,
           "Kafka option 'value.serializer' is not supported as value are serialized with"
           " ByteArraySerializer.", for_producer=True),
)  # fmt: skip

PLAIN: Final = "PLAIN"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER: Final = "OAUTHBEARER"
AWS_MSK_IAM: Final = "AWS_MSK_IAM"
GSSAPI: Final = "GSSAPI"
#: Every supported mechanism.
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)

_JVM = "it chooses among Java's own TLS classes; here OpenSSL does that work"
_ONE = AtLeast(1)
_STORE = OneOf(("PEM", "PKCS12", "JKS"))

SECURITY_OPTIONS = (
    Option("ssl.truststore.location", _T.STRING, None, _HIGH,
           "A file with the certificates to trust: PEM or PKCS12. It is read where the rows are"
           " written, so it must be on every executor. Without it and without"
           " `ssl.truststore.certificates` the system's CAs are trusted."),
    Option("ssl.truststore.type", _T.STRING, None, _MEDIUM,
           "PEM or PKCS12; the default is by content. A JKS store is rejected with the command"
           " that converts it.", _STORE),
    Option("ssl.truststore.password", _T.PASSWORD, None, _HIGH,
           "The password of a PKCS12 truststore."),
    Option("ssl.truststore.certificates", _T.PASSWORD, None, _HIGH,
           "The certificates to trust, as PEM text."),
    Option("ssl.keystore.location", _T.STRING, None, _HIGH,
           "A file with our private key and certificate chain, for brokers that require a client"
           " certificate: PEM or PKCS12."),
    Option("ssl.keystore.type", _T.STRING, None, _MEDIUM,
           "PEM or PKCS12; the default is by content.", _STORE),
    Option("ssl.keystore.password", _T.PASSWORD, None, _HIGH,
           "The password of a PKCS12 keystore."),
    Option("ssl.keystore.key", _T.PASSWORD, None, _HIGH,
           "Our private key, as PEM text (PKCS#8). In the sink only by reference,"
           " `${file:/path}` or `${env:NAME}`: Spark would show it."),
    Option("ssl.keystore.certificate.chain", _T.PASSWORD, None, _HIGH,
           "Our certificate, and those between it and the CA, as PEM text."),
    Option("ssl.key.password", _T.PASSWORD, None, _HIGH,
           "The password of an encrypted private key in PEM."),
    Option("ssl.endpoint.identification.algorithm", _T.STRING, "https", _LOW,
           "`https`: a broker's certificate must carry the name, or the address, that the broker"
           " advertises. Empty: any name is taken, which lets anyone with a certificate of the"
           " same CA read the rows. It takes no reference: an empty variable would mean that too.",
           OneOfAnyCase(("https",), empty="no check")),
    Option("ssl.enabled.protocols", _T.LIST, None, _MEDIUM,
           "The TLS versions to speak: TLSv1.2, TLSv1.3, or (the default) both. Older ones are"
           " never spoken."),
    Option("ssl.cipher.suites", _T.LIST, None, _LOW,
           "The cipher suites to offer, by Java's or OpenSSL's names. Those of TLS 1.3 can't be"
           " chosen one by one."),
    *(Option(name, _T.STRING, None, _LOW, "A choice among Java's TLS classes.", None,
             Status.NO_MEANING, _JVM)
      for name in ("ssl.protocol", "ssl.provider", "ssl.keymanager.algorithm",
                   "ssl.trustmanager.algorithm", "ssl.secure.random.implementation")),
    Option("ssl.engine.factory.class", _T.CLASS, None, _LOW, "A Java class that makes TLS engines.",
           None, Status.LATER_REFUSED, "set the ssl. options instead of the class"),
    Option("sasl.mechanism", _T.STRING, None, _MEDIUM,
           "The authentication mechanism for SASL_PLAINTEXT and SASL_SSL: PLAIN, SCRAM-SHA-256,"
           " SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI.",
           OneOfAnyCase(MECHANISMS, empty="")),
    Option("sasl.jaas.config", _T.PASSWORD, None, _MEDIUM,
           "The credentials, as for the Java client: a login module, `required`, and its options."
           " PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule, IAMLoginModule and"
           " Krb5LoginModule are understood, with and without the `kafkashaded.` of Databricks."),
    Option("sasl.username", _T.PASSWORD, None, _MEDIUM,
           "The name for PLAIN and SCRAM, instead of `sasl.jaas.config`. Java's client does not"
           " have it."),
    Option("sasl.password", _T.PASSWORD, None, _MEDIUM,
           "The password for PLAIN and SCRAM, or a token for OAUTHBEARER, instead of"
           " `sasl.jaas.config`. Java's client does not have it."),
    Option("sasl.client.callback.handler.class", _T.CLASS, None, _MEDIUM,
           "A Java class that makes a mechanism's messages. Only IAMClientCallbackHandler is known,"
           " and nothing is needed for it; any other is an error."),
    Option("sasl.login.callback.handler.class", _T.CLASS, None, _MEDIUM,
           "Where OAUTHBEARER's token comes from: the import path of a Python class with a method"
           " `token()` ([security](security.md)). Of Java's classes,"
           " OAuthBearerLoginCallbackHandler and Strimzi's JaasClientOauthLoginCallbackHandler mean"
           " what the other options say, and IAMOAuthBearerLoginCallbackHandler a token signed for"
           " Amazon MSK."),
    Option("sasl.oauthbearer.jwt.retriever.class", _T.CLASS, None, _MEDIUM,
           "The same as `sasl.login.callback.handler.class`, by the name that Kafka 4.1 gave it."),
    Option("sasl.oauthbearer.token.endpoint.url", _T.STRING, None, _MEDIUM,
           "Where an identity provider gives tokens for client id and secret, by https; http is"
           " taken for this machine only. `file:/path` reads the token from a file, whenever one is"
           " needed."),
    Option("sasl.oauthbearer.client.credentials.client.id", _T.STRING, None, _MEDIUM,
           "The client's id at the token endpoint; or `clientId` in `sasl.jaas.config`."),
    Option("sasl.oauthbearer.client.credentials.client.secret", _T.PASSWORD, None, _MEDIUM,
           "The client's secret at the token endpoint; or `clientSecret` in `sasl.jaas.config`."),
    Option("sasl.oauthbearer.scope", _T.STRING, None, _MEDIUM,
           "What the token is asked for; or `scope` in `sasl.jaas.config`."),
    Option("sasl.oauthbearer.header.urlencode", _T.BOOLEAN, _OFF, _LOW,
           "URL-encode client id and secret before they go to the token endpoint, as RFC 6749 wants"
           " it and many providers don't."),
    Option("sasl.login.connect.timeout.ms", _T.INT, 10_000, _LOW,
           "How long connecting to the token endpoint may take.", _ONE, java_default="no limit",
           why="a connection waits for its token"),
    Option("sasl.login.read.timeout.ms", _T.INT, 10_000, _LOW,
           "How long the token endpoint may take to answer.", _ONE, java_default="no limit",
           why="a connection waits for its token"),
    Option("sasl.login.retry.backoff.ms", _T.LONG, 100, _LOW,
           "Pause after a token could not be fetched; each failure in a row doubles it.",
           _ONE),
    Option("sasl.login.retry.backoff.max.ms", _T.LONG, 10_000, _LOW,
           "The longest pause after a token could not be fetched.", _ONE),
    Option("sasl.login.refresh.window.factor", _T.DOUBLE, 0.8, _LOW,
           "The share of its life for which a token is used. After that, another one is fetched"
           " before it is used again.", Between(0.5, 1.0)),
    Option("sasl.login.refresh.window.jitter", _T.DOUBLE, 0.05, _LOW,
           "A random share, at most this, is added to it.", Between(0.0, 0.25)),
    Option("sasl.login.refresh.min.period.seconds", _T.SHORT, 60, _LOW,
           "Minimum time a token is used before it is refreshed.", Between(0, 900)),
    Option("sasl.login.refresh.buffer.seconds", _T.SHORT, 300, _LOW,
           "A token is not used in the last seconds of its life, unless it is too short for that.",
           Between(0, 3600)),
    Option("sasl.kerberos.service.name", _T.STRING, None, _MEDIUM,
           "The Kerberos principal under which brokers run; or `serviceName` in"
           " `sasl.jaas.config`."),
    *(Option(name, type_, None, _LOW, "When and how Java renews a Kerberos ticket.", None,
             Status.NO_MEANING, "the machine's Kerberos libraries and kinit do that")
      for name, type_ in (("sasl.kerberos.kinit.cmd", _T.STRING),
                          ("sasl.kerberos.min.time.before.relogin", _T.LONG),
                          ("sasl.kerberos.ticket.renew.jitter", _T.DOUBLE),
                          ("sasl.kerberos.ticket.renew.window.factor", _T.DOUBLE))),
    *(Option(name, type_, None, _LOW, "How Java's client looks at a token before it sends it.",
             None, Status.NO_MEANING, "only the broker can validate a token")
      for name, type_ in (("sasl.oauthbearer.jwt.validator.class", _T.CLASS),
                          ("sasl.oauthbearer.expected.audience", _T.LIST),
                          ("sasl.oauthbearer.expected.issuer", _T.STRING),
                          ("sasl.oauthbearer.clock.skew.seconds", _T.INT),
                          ("sasl.oauthbearer.scope.claim.name", _T.STRING),
                          ("sasl.oauthbearer.sub.claim.name", _T.STRING),
                          ("sasl.oauthbearer.jwks.endpoint.url", _T.STRING),
                          ("sasl.oauthbearer.jwks.endpoint.refresh.ms", _T.LONG),
                          ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", _T.LONG),
                          ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", _T.LONG))),
    Option("sasl.login.class", _T.CLASS, None, _LOW, "A Java class that logs in.", None,
           Status.LATER_REFUSED, "name where the token comes from:"
           " sasl.login.callback.handler.class"),
    *(Option(name, type_, None, _LOW,
             "A signed assertion in place of a client's secret (KIP-1258).", None,
             Status.LATER_REFUSED, "use client id and secret, or a class of your own in"
             " sasl.login.callback.handler.class")
      for name, type_ in (
          ("sasl.oauthbearer.assertion.algorithm", _T.STRING),
          ("sasl.oauthbearer.assertion.claim.aud", _T.STRING),
          ("sasl.oauthbearer.assertion.claim.exp.seconds", _T.INT),
          ("sasl.oauthbearer.assertion.claim.iss", _T.STRING),
          ("sasl.oauthbearer.assertion.claim.jti.include", _T.BOOLEAN),
          ("sasl.oauthbearer.assertion.claim.nbf.seconds", _T.INT),
          ("sasl.oauthbearer.assertion.claim.sub", _T.STRING),
          ("sasl.oauthbearer.assertion.file", _T.STRING),
          ("sasl.oauthbearer.assertion.private.key.file", _T.STRING),
          ("sasl.oauthbearer.assertion.private.key.passphrase", _T.PASSWORD),
          ("sasl.oauthbearer.assertion.template.file", _T.STRING))),
)  # fmt: skip

URL: Final = "schema.registry.url"
USER_INFO: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"  # noqa: S105 - a name
ENDPOINT: Final = "bearer.auth.issuer.endpoint.url"
TIMEOUT: Final = "schema.registry.request.timeout.ms"
_SSL: Final = "schema.registry."
_ALGORITHM: Final = "ssl.endpoint.identification.algorithm"
_PACKAGE: Final = "io.confluent.kafka.serializers.subject."
_ID_PACKAGE: Final = "io.confluent.kafka.serializers.schema.id."
_PREFIX, _HEADER = "PrefixSchemaIdSerializer", "HeaderSchemaIdSerializer"

_STRATEGIES: Final = OneOf(
    (*SubjectStrategy, *(f"{_PACKAGE}{strategy}" for strategy in SubjectStrategy))
)


def _of(part: str, columns: str) -> tuple[Option, ...]:
    """The rows that keys and values have alike."""
    return (
        Option(f"{part}Schema", _T.STRING, None, _LOW,
               f"The schema that {columns} are written with: its text, or the path of a file on the"
               " driver that holds it. Unset: the registry's latest version when"
               " `use.latest.version` is set, else the schema that the columns make.", NonEmpty(),
               of_one_write=True),
        Option(f"{part}SchemaName", _T.STRING, None, _LOW,
               "The name of the record, with its namespace, in the schema that the columns make."
               " Unset: the topic's name as letters, digits and underscores"
               + (", and `_key`." if part == "key" else "."), NonEmpty(), of_one_write=True),
        Option(f"{part}.subject.name.strategy", _T.CLASS, "TopicNameStrategy", _LOW,
               "The subject of the schema: the topic's name"
               f" and `-{part}` (`TopicNameStrategy`), the name of the record"
               " (`RecordNameStrategy`), or both (`TopicRecordNameStrategy`); also by the names of"
               " Java's classes.", _STRATEGIES, of_one_write=True),
        Option(f"{part}.schema.id.serializer", _T.CLASS, _PREFIX, _LOW,
               "Where readers find the schema: its id in front of the payload"
               f" (`{_PREFIX}`), or its GUID in the header `__{part}_schema_id` (`{_HEADER}`), for"
               " which the registry must have GUIDs; also by the names of Java's classes.",
               OneOf((_PREFIX, _HEADER, _ID_PACKAGE + _PREFIX, _ID_PACKAGE + _HEADER)),
               of_one_write=True),
    )  # fmt: skip


REGISTRY_OPTIONS: Final = (
    Option(URL, _T.STRING, None, _MEDIUM,
           "Where the schema registry is, with commas between several, which are tried in turn:"
           " `https://host:8081`. Required by the formats `avro`, `protobuf` and `json-schema`."
           " Only the driver sends requests to it."),
    Option("auto.register.schemas", _T.BOOLEAN, _OFF, _MEDIUM,
           "Register the schema when the subject does not have it.", java_default="true",
           why="a job that makes a mistake must not change what all readers see"),
    Option("use.latest.version", _T.BOOLEAN, _OFF, _MEDIUM,
           "Write with the subject's latest version, unless `valueSchema` (`keySchema`) is set."),
    Option("use.schema.id", _T.INT, None, _LOW,
           "Write with the schema of this id: values, or keys when values have no schema.",
           Between(1, INT_MAX)),
    Option("normalize.schemas", _T.BOOLEAN, _ON, _LOW,
           "Let the registry compare schemas by their meaning and not by their text.",
           java_default="false", why="the text of a schema made of columns is ours"),
    Option("basic.auth.credentials.source", _T.STRING, "USER_INFO", _LOW,
           "Where name and password for the registry come from; other sources of Confluent's are"
           " not known here.", OneOf(("USER_INFO",))),
    Option(USER_INFO, _T.PASSWORD, None, _MEDIUM,
           "`name:password` for the registry. Only by reference, `${file:/path}` or `${env:NAME}`,"
           " or in a `configFile`: Spark would show it."),
    Option("bearer.auth.credentials.source", _T.STRING, None, _LOW,
           "Where a bearer token for the registry comes from: `STATIC_TOKEN` (bearer.auth.token) or"
           " `OAUTHBEARER` (a token endpoint). Unset: by which of them is set.",
           OneOfAnyCase(("STATIC_TOKEN", "OAUTHBEARER"))),
    Option(TOKEN, _T.PASSWORD, None, _LOW, "The token itself."),
    Option(ENDPOINT, _T.STRING, None, _LOW,
           "The identity provider's token endpoint (client credentials), by https; http is taken"
           " for this machine only."),
    Option("bearer.auth.client.id", _T.STRING, None, _LOW, "The client's id there."),
    Option("bearer.auth.client.secret", _T.PASSWORD, None, _LOW, "The client's secret there."),
    Option("bearer.auth.scope", _T.STRING, None, _LOW, "What the token is asked for."),
    Option("bearer.auth.logical.cluster", _T.STRING, None, _LOW,
           "Confluent Cloud's id of the registry, sent with a token."),
    Option("bearer.auth.identity.pool.id", _T.STRING, None, _LOW,
           "Confluent Cloud's id of the identity pool, sent with a token."),
    Option(TIMEOUT, _T.INT, 10_000, _LOW,
           "How long a request to the registry may take. What may pass is tried three times, all"
           " within kafka.max.block.ms.", AtLeast(1), java_default="60000",
           why="a user waits for the error"),
    *(replace(one, name=_SSL + one.name, importance=_LOW,
              doc=one.doc.replace("a broker's", "the registry's").replace("brokers", "registries"))
      for one in SECURITY_OPTIONS
      if one.name.startswith("ssl.") and one.status is Status.HONOURED and one.name != _ALGORITHM),
    Option(f"{_SSL}{_ALGORITHM}", _T.STRING, "https", _LOW,
           "`https`, the only value: the name of the registry, and of a token endpoint, is always"
           " compared with its certificate.", OneOfAnyCase(("https",))),
)  # fmt: skip

SCHEMA_OPTIONS: Final = (
    *_of("value", "valueColumns"),
    *_of("key", "keyColumns"),
    *REGISTRY_OPTIONS,
)
_REGISTRY_NAMES: Final = frozenset(one.name for one in REGISTRY_OPTIONS) | {
    f"{part}.{name}"
    for part in ("key", "value")
    for name in ("subject.name.strategy", "schema.id.serializer")
}

COMMIT_LOG_TOPIC = "__kprod_commits"

_SINK = (
    Option("topic", _T.STRING, None, _HIGH,
           "Topic for all rows; overrides a `topic` column. Required when there is no such"
           " column.", TopicName(), of_one_write=True),
    Option("deliveryGuarantee", _T.STRING, "at-least-once", _HIGH,
           "The guarantee: `at-least-once` (idempotent producer, acks=all), `exactly-once` (each"
           " task writes in a Kafka transaction, and the driver ends them all), or `none` (no"
           " idempotence, acks as asked). See delivery-guarantees.md.",
           OneOfAnySpelling(("at-least-once", "none", "exactly-once"))),
    Option("valueColumns", _T.STRING, None, _MEDIUM,
           "Columns that become the record's value, in place of a column `value`; `*`: all of the"
           " DataFrame; `payload.*`: the fields of the struct `payload`, whose null is a null"
           " value. See columns.md.", ColumnNames(all_too=True), of_one_write=True),
    Option("valueFormat", _T.STRING, "json", _MEDIUM,
           "How valueColumns become a value: `json`, an object as Spark's `to_json(struct(...))`"
           " writes it; `string`, the text or bytes of a single column; or with a schema and its id"
           " in a registry `avro`, `protobuf` or `json-schema`. See formats.md.",
           OneOfAnyCase(tuple(ColumnFormat)),
           of_one_write=True),
    Option("keyColumns", _T.STRING, None, _MEDIUM,
           "Columns that become the record's key, in place of a column `key`.", ColumnNames(),
           of_one_write=True),
    Option("keyFormat", _T.STRING, "json", _LOW,
           "How keyColumns become a key, as valueFormat. One column without a keySchema is a key by"
           " itself in `avro` and `json-schema`.", OneOfAnyCase(tuple(ColumnFormat)),
           of_one_write=True),
    Option("headersColumns", _T.STRING, None, _LOW,
           "Columns of strings or bytes that become headers of their names, in place of a column"
           " `headers`. A null is no header.", ColumnNames(), of_one_write=True),
    Option("onNullValue", _T.STRING, "tombstone", _LOW,
           "What becomes of a row whose value is null: a record with a null value (`tombstone`), an"
           " `error`, or nothing (`skip`), which the report counts.",
           OneOfAnyCase(tuple(OnNullValue)), of_one_write=True),
    Option("maxRecordsPerSecond", _T.LONG, None, _LOW,
           "The most records a second of all tasks of a write together; each of the tasks that run"
           " at once (tasksAtOnce) has an equal share. Tasks wait, and the report says how long."
           " See tuning.md.", AtLeast(1)),
    Option("maxBytesPerSecond", _T.LONG, None, _LOW,
           "The same in bytes of keys, values and headers, before compression.", AtLeast(1)),
    Option("tasksAtOnce", _T.INT, None, _LOW,
           "How many tasks of a write run at once at most, by which maxRecordsPerSecond and"
           " maxBytesPerSecond are divided. Unset: what Spark's configuration says of the"
           " application's cores.", AtLeast(1)),
    Option("preflight", _T.STRING, None, _MEDIUM,
           "Whether the driver asks the cluster for the topic before any task starts: `required`"
           " (a missing topic or an unreachable cluster is an error), `warn` (it is a warning) or"
           " `off`. Unset: `required` for a batch write, `warn` for a stream.",
           OneOfAnyCase(("required", "warn", "off"))),
    Option("reportPath", _T.STRING, None, _LOW,
           "A file on the driver to which each batch appends its report, one line of JSON; or a"
           " directory (it exists, or the path ends in `/`) that gets a file for each report, which"
           " works on volumes and mounted object stores, too. When it can't be written, that is a"
           " warning: the rows are in Kafka. See reports.md.", NonEmpty()),
    Option("reportPathRetentionBytes", _T.LONG, None, _LOW,
           "The most bytes that reports under reportPath take, about. A file of half of it is"
           " renamed to its name with `.1`, in place of the former one; of a directory the oldest"
           " reports are deleted. Unset: nothing is deleted, and a file ends at 1 GiB.",
           AtLeast(1)),
    Option("reportPathRetentionMs", _T.LONG, None, _LOW,
           "How long reports under reportPath are kept at most, in the same way: a file whose first"
           " report is half as old is renamed, and one with `.1` is deleted when its last one is."
           " Unset: without a limit.", AtLeast(1)),
    Option("reportTopic", _T.STRING, None, _LOW,
           "A topic of the same cluster that gets each report as a record of JSON, in its partition"
           " 0. With exactly-once it is written in the decision of its batch: consumers that read"
           " committed see it if and only if they see the rows. The principal needs WRITE on it.",
           TopicName()),
    Option("reportListeners", _T.LIST, (), _LOW,
           "Functions of yours, as import paths (`package.module:function`), that are called on the"
           " driver with each report, in the order given. They must be importable there.",
           ),
    Option("progressListeners", _T.LIST, (), _LOW,
           "The same, called on the executor every 30 s with what a running task says of itself"
           " (`TaskProgress`, see reports.md). They must be importable there, too.",
           ),
    Option("progressTopic", _T.STRING, None, _LOW,
           "A topic of the same cluster to which Python workers that write for more than 10 s, and"
           " commits that take longer, send their figures every 10 s, for metrics and a progress"
           " bar on the driver (monitoring.md). The principal needs WRITE on it; each such worker"
           " opens a connection to the leader of its partition 0.", TopicName()),
    Option("transactionalIdPrefix", _T.STRING, None, _MEDIUM,
           "With exactly-once: the beginning of every transactional id, by which brokers' ACLs and"
           " operators know yours, and under which decisions are kept. Letters, digits, '.', '_'"
           " and '-', at most 100 of them. Each stream needs a different one, and must keep it over"
           " restarts; unset, a batch write takes `kprod`.", NonEmpty()),
    Option("txnAppId", _T.STRING, None, _LOW,
           "With exactly-once, batch writes only, together with txnVersion: the name of the"
           " writer, under which its versions are counted. Letters, digits, '.', '_' and '-', at"
           " most 100 of them.", NonEmpty()),
    Option("txnVersion", _T.LONG, None, _LOW,
           "With txnAppId: the number of this write. One that is at most the last committed version"
           " of that txnAppId (and transactionalIdPrefix) writes nothing, so a job can be run again"
           " after any failure.", _ZERO),
    Option("verifyReplays", _T.BOOLEAN, _ON, _LOW,
           "With exactly-once: whether a batch that is dropped, because its number is committed"
           " already, must have as many rows and bytes as the one that was written. Set it to false"
           " for a query that gives other rows each time it runs."),
    Option("offsetsGroup", _T.STRING, None, _LOW,
           "With exactly-once, in a stream, foreach_batch or transaction of a query that reads from"
           " Kafka: the consumer group whose offsets are committed with each micro-batch, in"
           " the same decision, so that lag tools see what is visible. It needs the query's"
           " checkpointLocation as an option, and the topics that are read in the cluster that is"
           " written to. Each query needs a group of its own.", NonEmpty()),
    Option("offsetsGroupInUse", _T.STRING, "refuse", _LOW,
           "What a write does when the group of offsetsGroup has members, whose position would be"
           " overwritten: `refuse` is an error before any task starts, `allow` commits it anyway.",
           OneOfAnyCase(("refuse", "allow"))),
    Option("twoPhaseCommit", _T.STRING, "off", _LOW,
           "With exactly-once: `auto` writes in transactions that never time out (KIP-939) where"
           " brokers offer it and the principal has the right TWO_PHASE_COMMIT, and says so; `off`"
           " never does. Kafka 4.3 offers it under unstable.api.versions.enable only.",
           OneOfAnyCase(("off", "auto"))),
    Option("txnContext", _T.STRING, None, _LOW,
           "The run that writes: set by foreach_batch and transaction.", NonEmpty(), internal=True),
    Option("checkpointLocation", _T.STRING, None, _LOW,
           "Spark's own, where a micro-batch's offsets are found.", internal=True),
    Option("commitLogTopic", _T.STRING, COMMIT_LOG_TOPIC, _LOW,
           "With exactly-once: the compacted topic in which drivers keep their decisions. It is"
           " created when it is missing and the principal may create it.", TopicName()),
    Option("configFile", _T.STRING, None, _LOW,
           "A properties file with a Kafka client's settings, with or without the prefix `kafka.`,"
           " and with the options of this page; options that are given win. The driver reads it."
           " Secrets in it never become options: they are read from the same path on each"
           " executor. See security.md.", NonEmpty()),
)  # fmt: skip


DEAD_LETTER_OPTIONS: Final = (
    Option(TOLERANCE, _T.STRING, "none", _MEDIUM,
           "What becomes of rows that can't be sent: the first one fails its task (`none`), or each"
           " becomes a record of the topic of errors.deadletterqueue.topic.name, with the reason in"
           " its headers, in the same transaction as the rows (`all`). See dead-letters.md.",
           OneOfAnyCase(("none", "all"))),
    Option(TOPIC, _T.STRING, None, _MEDIUM,
           "The topic of the dead letters, which errors.tolerance=all requires. It is created when"
           " it is missing, with one partition. It must not be compacted, nor be a topic that the"
           " write has rows for.", TopicName()),
    Option(TOPIC_IN_STREAMS, _T.STRING, None, _LOW,
           "Kafka Streams' name of errors.deadletterqueue.topic.name.", TopicName()),
    Option(REPLICAS, _T.SHORT, None, _LOW,
           "The replicas of that topic, if it is created. Unset: as the brokers' configuration has"
           " it.", Between(1, 2**15 - 1), java_default="3",
           why="a cluster of one or two brokers, and one that decides by itself, refuse three"),
    Option(CONTEXT, _T.BOOLEAN, _ON, _LOW,
           "Whether letters have the headers `__connect.errors.*` of Kafka Connect. Those named"
           " `__kprod.errors.*` they have always.", java_default="false",
           why="a letter without its reason is of no use"),
    Option(LOG, _T.BOOLEAN, _OFF, _LOW,
           "Whether a task logs a warning for each reason in each Arrow batch: how many rows, and"
           " the numbers of the first ones."),
    Option(MESSAGES, _T.BOOLEAN, _OFF, _LOW,
           "Whether that warning also shows topic, key and value of the first rows. They are data:"
           " executors' logs are read by more people than a topic."),
    Option(MAX_RECORDS, _T.LONG, None, _MEDIUM,
           "How many rows of a batch or micro-batch may become dead letters. With one more the"
           " whole batch fails, before it is decided.", AtLeast(0)),
    Option(MAX_FRACTION, _T.DOUBLE, None, _MEDIUM,
           "The same as a part of the rows that came in, 0 to 1.", Between(0, 1)),
    Option(MAX_VALUE, _T.INT, 65_536, _LOW,
           "To how many bytes the value of a letter is cut.", Between(0, INT_MAX)),
)  # fmt: skip


def _table(*groups: Iterable[Option]) -> dict[str, Option]:
    return {option.name: option for group in groups for option in group}


#: Options of the producer by Java's name, which is in lower case throughout.
PRODUCER_OPTIONS: dict[str, Option] = _table(
    _CONNECTION, _DELIVERY, _BATCHING, _PARTITIONING, _METADATA, _TRANSACTIONS,
    _INTERCEPTORS, _WITHOUT_EFFECT,
    _REMOVED, _REFUSED, SECURITY_OPTIONS,
)  # fmt: skip

#: The sink's own options by their name in camelCase.
SINK_OPTIONS: dict[str, Option] = _table(_SINK, DEAD_LETTER_OPTIONS, SCHEMA_OPTIONS)

#: Families of names that Java accepts by prefix.
NO_MEANING_PREFIXES: dict[str, str] = {
    "metrics.context.": _METRICS,
    "config.providers.": "references need no provider here",
}


def needs_registry(formats: object) -> bool:
    """Whether one of the texts is a format with a schema."""
    texts = formats if isinstance(formats, tuple) else (formats,)
    return any(str(text).strip().lower() in WITH_SCHEMA for text in texts)


def is_registry_option(name: str) -> bool:
    """An option of the registry's client, which other clients' files have too."""
    return name in _REGISTRY_NAMES
