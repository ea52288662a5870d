"""The kinds of errors and warnings: each with a stable code, and its remedy.

Owns: :class:`Kind` (``KP0301`` etc.), and the text of docs/errors.md and ``kprod explain`` for
each. Never: a message. An exception class has a kind (``errors.py``), a raise site may use a
narrower one, and a broker's error has the kind of its own code (``KP1`` and its number).

A code is never reused or changed, because users search for it and link to it. The first two digits
are the area: 01 options, 02 columns and rows, 03 connections, 04 authentication, 05 delivery,
06 commit and exactly-once, 07 a user's own code and reports, 09 bugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final


@unique
class Kind(StrEnum):
    """A kind of error or warning, as its code."""

    UNSPECIFIED = "KP0001"

    CONFIG = "KP0100"
    UNKNOWN_OPTION = "KP0101"
    FOREIGN_OPTION = "KP0102"
    INVALID_VALUE = "KP0103"
    MISSING_BOOTSTRAP = "KP0104"
    BOOTSTRAP_ADDRESS = "KP0105"
    UNSUPPORTED_OPTION = "KP0106"
    NO_EFFECT = "KP0107"
    NO_OPTIONS = "KP0108"
    UNSUPPORTED_WRITE = "KP0109"
    UNRESOLVED_REFERENCE = "KP0110"
    NO_REFERENCE = "KP0111"
    TLS_SETTING = "KP0120"
    KEY_STORE = "KP0121"
    INLINE_SECRET = "KP0122"  # noqa: S105 - a code
    SASL_SETTING = "KP0130"
    LOGIN_MODULE = "KP0131"
    TOKEN_SOURCE = "KP0132"  # noqa: S105 - a code
    IMPORT_PATH = "KP0140"
    MISSING_PACKAGE = "KP0141"
    NOT_ALLOWED = "KP0142"
    WITHOUT_EFFECT = "KP0150"
    OTHER_VALUE = "KP0151"
    WEAKER_GUARANTEE = "KP0152"
    WEAK_SECURITY = "KP0153"
    SHORT_TRANSACTION = "KP0154"

    SCHEMA = "KP0200"
    MISSING_VALUE_COLUMN = "KP0201"
    NO_TOPIC = "KP0202"
    COLUMN_TYPE = "KP0203"
    IGNORED_COLUMN = "KP0204"
    ROWS_ONE_BY_ONE = "KP0205"
    NO_SUCH_COLUMN = "KP0206"
    TWO_SOURCES = "KP0207"
    DATA = "KP0210"
    NULL_TOPIC = "KP0211"
    PARTITION_NOT_THERE = "KP0212"
    RECORD_TOO_LARGE = "KP0213"
    NULL_VALUE = "KP0214"
    NULL_KEY = "KP0215"
    REFUSED_BY_SCHEMA = "KP0216"
    INVALID_TOPIC_NAME = "KP0230"
    INVALID_TIMESTAMP = "KP0231"
    INVALID_HEADERS = "KP0232"
    TOO_MANY_BAD_ROWS = "KP0233"
    LETTER_NOT_SENT = "KP0234"
    ROWS_TO_DEAD_LETTERS = "KP0235"
    SERIALIZATION = "KP0220"
    SCHEMA_REGISTRY = "KP0221"
    SCHEMA_NOT_REGISTERED = "KP0222"
    UNUSABLE_SCHEMA = "KP0223"
    COLUMNS_AND_SCHEMA = "KP0224"

    NO_BROKER = "KP0301"
    TOPIC_NOT_PRESENT = "KP0302"
    MALFORMED_ANSWER = "KP0303"
    WRONG_LISTENER = "KP0304"
    TIMEOUT = "KP0305"
    NO_LEADER = "KP0306"
    TOPIC_LIMIT = "KP0307"
    UNRESOLVED_ADDRESS = "KP0308"
    OTHER_CLUSTER = "KP0309"
    NO_SUCH_LISTENER = "KP0310"
    NOT_CONNECTED = "KP0311"

    AUTHENTICATION = "KP0401"
    NO_NEW_CREDENTIAL = "KP0402"

    DELIVERY = "KP0500"
    EXPIRED = "KP0501"
    BUFFER_EXHAUSTED = "KP0502"
    WRITE_FAILED = "KP0503"
    RATE_TOO_LOW = "KP0504"

    COMMIT = "KP0600"
    NO_COMMIT_MESSAGE = "KP0601"
    VERSIONS_DIFFER = "KP0602"
    NOT_INSTALLED_FOR_WORKERS = "KP0603"
    OUTCOME_UNKNOWN = "KP0610"
    PARTIAL_COMMIT = "KP0611"
    SUPERSEDED = "KP0612"
    REFUSED = "KP0613"
    TRANSACTION_ABORTED = "KP0614"
    WRITE_ABORTED = "KP0620"
    NOT_ABORTED = "KP0621"
    DECIDED_NOT_ABORTED = "KP0622"
    ORPHANS_UNSEEN = "KP0623"
    BATCH_UNDONE = "KP0624"
    DONE_NOT_NOTED = "KP0625"
    COMMIT_LOG_EMPTY = "KP0626"
    COMMIT_LOG_AT_RISK = "KP0627"
    NOTHING_WRITTEN = "KP0628"

    USER_CODE = "KP0701"
    CLOSE_IN_CALLBACK = "KP0702"
    REPORT_NOT_WRITTEN = "KP0703"
    NO_REPORTS_KEPT = "KP0704"

    ILLEGAL_STATE = "KP0900"

    @property
    def kp_code(self) -> str:
        """``KP0301``: what is shown, and the anchor of docs/errors.md."""
        return self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """The documentation of a kind: ``title`` in a few words, ``says`` its messages (``...`` for
    what differs), ``advice`` in Markdown.
    """

    title: str
    advice: str
    says: tuple[str, ...] = ()


ENTRIES: Final[Mapping[Kind, Entry]] = {
    Kind.UNSPECIFIED: Entry(
        "An error without a more specific code",
        "The message has all known details. An error from a closed or failed producer is the "
        "consequence of an earlier one: look for that in the log.",
    ),
    Kind.CONFIG: Entry(
        "An option is wrong",
        "It is out of range, or contradicts another; the hint says what to change. "
        "[Every option](options.md), and [security settings](security.md). `kafka.acks`, "
        "`kafka.retries` and `kafka.enable.idempotence` must fit the "
        "[guarantee](delivery-guarantees.md): remove them, or say `deliveryGuarantee=none`. The "
        "driver reads a `configFile` (`KafkaProducer` and `kprod`: their own process) at exactly "
        "the path that is given; on a cluster, put it where the driver runs, and on every executor "
        "if it holds secrets.",
        (
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms",
            "deliveryGuarantee=... needs an idempotent producer, but ...",
            "deliveryGuarantee=exactly-once in a stream needs the option transactionalIdPrefix",
            "kafka.transaction.timeout.ms is ...: above the broker's transaction.max.timeout.ms",
            "commitLogTopic '...' has cleanup.policy=...; it must be compact",
            "... can't be read: ...",
        ),
    ),
    Kind.UNKNOWN_OPTION: Entry(
        "There is no such option",
        "A misspelt name: the hint has the nearest one. Options of the producer need the prefix "
        "`kafka.`. For a line of a `configFile` the message names the file, too. "
        "[Every option](options.md).",
        ("Unknown option '...'",),
    ),
    Kind.FOREIGN_OPTION: Entry(
        "The option belongs to something else",
        "`subscribe`, `startingOffsets` and the like belong to reading: often one dictionary of "
        "options was used for both sides, so split it. Options of librdkafka, Kafka Connect, a "
        "schema registry or another sink get a hint that says what to do here instead.",
        ("Option '...'... belongs to ...", "is librdkafka's name; options have Java's names here"),
    ),
    Kind.INVALID_VALUE: Entry(
        "An option has an invalid value",
        "The value has the wrong type or is out of range; the hint says what the option takes.",
        ("Invalid value ... for configuration ...: ...",),
    ),
    Kind.MISSING_BOOTSTRAP: Entry(
        "No bootstrap servers",
        "Set `kafka.bootstrap.servers` to `host:port,host:port`. The prefix is part of the name.",
        (
            "Kafka option bootstrap.servers is not set. Please make sure it is set and retry.",
            "Configuration 'bootstrap.servers' must not be empty.",
        ),
    ),
    Kind.BOOTSTRAP_ADDRESS: Entry(
        "A bootstrap server is not an address",
        "An address is `host:port`. The port is missing, an IPv6 address lacks its brackets, or "
        "something precedes the host.",
        ("Invalid url in bootstrap.servers: ...", "Invalid port in bootstrap.servers: ..."),
    ),
    Kind.UNSUPPORTED_OPTION: Entry(
        "An option that this version does not support",
        "The Java client has it (a class of the JVM, two-phase commit). It is rejected rather than "
        "ignored; the hint says what to use.",
        ("... is not supported by this version",),
    ),
    Kind.NO_EFFECT: Entry(
        "A security setting would have no effect",
        "Most often `kafka.security.protocol` is missing, and the rows would go over the network "
        "in the clear. Set it to what the hint says, or remove the other options "
        "([what would have no effect](security.md#what-would-have-no-effect)). A store that is "
        "given twice: keep the intended one.",
        (
            "... would have no effect, because ... is ...",
            "... would have no effect, because the token comes from ...",
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
    ),
    Kind.NO_OPTIONS: Entry(
        "No option reached the sink",
        "Spark passes no options of a table, and none of `insertInto()`, to a Python sink. Write "
        "`INSERT INTO t WITH ('kafka.bootstrap.servers' = ..., 'topic' = ...) SELECT ...`, or "
        '`df.writeTo("t").option(...).append()`.',
        ("no option reached the kprod sink",),
    ),
    Kind.UNSUPPORTED_WRITE: Entry(
        "A kind of write that a topic does not support",
        "A topic can't be replaced, so there is no Overwrite and no Complete: use "
        '`.mode("append")`, '
        "or `foreachBatch`. Spark drops every row with a continuous trigger: use `trigger("
        'processingTime="1 second")`. `kprod` does not read: use Spark\'s own `format("kafka")`.',
        (
            "Save mode Overwrite not allowed for Kafka",
            "kprod does not support complete output mode",
            "kprod does not support the continuous trigger",
            "kprod only writes",
        ),
    ),
    Kind.UNRESOLVED_REFERENCE: Entry(
        "A reference to a secret can't be resolved",
        "`${env:NAME}` and `${file:/path}` are resolved on the driver and on each executor: the "
        "message says on which host and in which of them that failed. "
        "[How secrets travel](security.md).",
    ),
    Kind.NO_REFERENCE: Entry(
        "A reference is not resolved here",
        "`${env:NAME}`, `${file:/path}` and `${file:/path:key}` are resolved, in the options of "
        "TLS and SASL that hold secrets, users and paths. Other forms, and other providers' "
        "references, would be sent to the broker unresolved, so they are rejected. "
        "[How secrets travel](security.md).",
        ("is not looked up in this option", "references of the provider ... are not looked up"),
    ),
    Kind.TLS_SETTING: Entry(
        "A setting of TLS is wrong",
        "Protocol versions, cipher suites, or hostname verification. Without these options TLS is "
        "as secure as this machine's OpenSSL: leave them out unless you must set them. "
        "[TLS](security.md).",
        (
            "ssl.cipher.suites: ...",
            "ssl.enabled.protocols=... has nothing that is safe",
            "ssl.endpoint.identification.algorithm=... is unknown",
        ),
    ),
    Kind.KEY_STORE: Entry(
        "A key store or trust store can't be used",
        "The message names the option, and the hint what the store lacks. PEM and PKCS12 are read, "
        "JKS is not: the hint has the `keytool` line that converts it. The file must be on every "
        "executor. A password is for the store, `ssl.key.password` for a key in PEM. "
        "[TLS](security.md).",
        (
            "... holds no certificate",
            "... holds no private key",
            "... can't be opened as a PKCS12 store",
            "the private key of ... can't be used",
            "... is a JKS store, which only Java reads",
        ),
    ),
    Kind.INLINE_SECRET: Entry(
        "A secret is in an option that Spark shows, or on a command line",
        "Spark hides options by their names, and would show this one in plans, in its UI and in "
        "event logs; a command line is in the shell's history and in `ps`. Give a reference, "
        "`${file:/path}` or `${env:NAME}`. If the secret was real, replace it: Spark may have "
        "logged it before we saw it. [How secrets travel](security.md).",
        (
            "... is on the command line: the shell's history and ps show it",
            "... is given inline, and Spark would show it: in plans, in its UI and in event logs",
            "nothing in its text makes Spark hide it",
        ),
    ),
    Kind.SASL_SETTING: Entry(
        "A setting of SASL is wrong",
        "The mechanism, or its settings: a name and a password, a service name for Kerberos. "
        "[SASL](security.md#sasl) has an example of each mechanism.",
        (
            "sasl.mechanism=... is not supported",
            "sasl.mechanism is not set",
            "No serviceName defined in either JAAS or Kafka config",
        ),
    ),
    Kind.LOGIN_MODULE: Entry(
        "sasl.jaas.config can't be used",
        'It is one login module: its class, `required`, `name="value"` pairs, and a semicolon. '
        "The class must match `sasl.mechanism`, by its Kafka name (a prefix `kafkashaded.` is "
        "removed); its options have Java's names, letter by letter, and none is empty. "
        "[SASL](security.md#sasl).",
        (
            "sasl.jaas.config can't be read: ... (at character ...)",
            "sasl.jaas.config: the login module ... is not known here",
            "sasl.jaas.config has a ..., but sasl.mechanism is ...",
            "sasl.jaas.config: ... has no option ...",
        ),
    ),
    Kind.TOKEN_SOURCE: Entry(
        "Where the token or the credentials come from is not clear",
        "OAUTHBEARER takes a token from exactly one place: a token endpoint with a client's id and "
        "secret, a file, a class of your own, or the option itself. An endpoint is `https`. AWS "
        "has its own chain of credentials, a profile, or a role. [SASL](security.md#sasl).",
        (
            "sasl.mechanism is OAUTHBEARER, and nothing says where its token comes from",
            "the token of OAUTHBEARER comes from ...; one would not count",
        ),
    ),
    Kind.IMPORT_PATH: Entry(
        "A class that an option names can't be instantiated",
        "The option takes `package.module:Name` of Python, importable on the driver and on every "
        "executor (`spark.sparkContext.addPyFile`, or install it), and instantiated without "
        "arguments. A class of the JVM can't run in Python workers.",
        (
            "... can't be imported: ...",
            "... can't be made without arguments: ...",
            "... is not an import path",
        ),
    ),
    Kind.MISSING_PACKAGE: Entry(
        "An optional package is not installed",
        "The hint has the `pip install` line. It is needed on the driver and on every executor.",
        (
            "AWS credentials need the package botocore",
            "sasl.mechanism=GSSAPI (Kerberos) needs the package gssapi",
            "... is a PKCS12 store, and the package cryptography is not installed",
        ),
    ),
    Kind.NOT_ALLOWED: Entry(
        "The operator of this process does not allow it",
        "Files, variables, token endpoints and imports that options may reach can be limited by "
        "the environment of driver and executors; options can't change that. "
        "[Allow-lists](security.md).",
        ("... is not allowed here: ... of this process on host ... does not list it",),
    ),
    Kind.WITHOUT_EFFECT: Entry(
        "Warning: an option does nothing here",
        "It belongs to Java's producer, or to another client in the same file; here it changes "
        "nothing, and may be removed. [Every option](options.md).",
        ("Option '...'... has no effect: ...", "...: ignored what is ...: ..."),
    ),
    Kind.OTHER_VALUE: Entry(
        "Warning: an option was set to another value",
        "It conflicts with another option, and Java's producer changes it in the same way; the "
        "line has the new value. Set both to values that fit.",
        (
            ". Setting it to ...",
            "A static ... with value '...' will be applied.",
            "Disabling exponential reconnect backoff because ... is set, but ... is not.",
            "batches will be at most as large as that.",
            "'bootstrap.servers' contains duplicate values.",
        ),
    ),
    Kind.WEAKER_GUARANTEE: Entry(
        "Warning: an option weakens the producer's guarantees",
        "Without idempotence a retry can write rows twice or in another order, and with `acks` "
        "other than `all` rows can be lost. Remove the option that the line names, or set "
        "`deliveryGuarantee=none` if that is intended. [Guarantees](delivery-guarantees.md).",
        ("Idempotence will be disabled because ...", "deliveryGuarantee is none because ..."),
    ),
    Kind.WEAK_SECURITY: Entry(
        "Warning: an attacker could eavesdrop or impersonate a broker",
        "A secret is sent in the clear (use SASL_SSL), the broker's name is not compared with its "
        "certificate (remove the empty `ssl.endpoint.identification.algorithm`), or is compared "
        "with one that DNS gives (remove `client.dns.lookup`), or a file of secrets is "
        "world-writable (`chmod o-w`). [Security](security.md).",
        (
            "... is SASL_PLAINTEXT and sasl.mechanism is ...",
            "... is empty: brokers' names are not compared with their certificates",
            "the name that a bootstrap server's certificate must carry is one that DNS gives",
            "...: every user of this machine may write that file",
        ),
    ),
    Kind.SHORT_TRANSACTION: Entry(
        "Warning: few stages fit into kafka.transaction.timeout.ms",
        "Brokers abort a transaction that is open for longer, and with it the batch. "
        "[How to choose it](delivery-guarantees.md#how-to-choose-the-time-out).",
        ("a stage that takes longer from its first row to its commit fails",),
    ),
    Kind.SCHEMA: Entry(
        "The columns don't fit a Kafka sink",
        "The sink's [columns](columns.md). Extra columns are ignored, but Spark can't pass every "
        "type, or two columns of one name, to a Python sink: drop or rename them.",
    ),
    Kind.MISSING_VALUE_COLUMN: Entry(
        "There is no column value",
        "The DataFrame needs a column `value`, in lower case. A whole row becomes one with "
        "`to_json(struct(*))`.",
        ("Required attribute 'value' not found",),
    ),
    Kind.NO_TOPIC: Entry(
        "There is neither an option topic nor a column topic",
        "Set the option `topic`, or add a column `topic` (a string, in lower case).",
        ("topic option required when no 'topic' attribute is present.",),
    ),
    Kind.COLUMN_TYPE: Entry(
        "A column has the wrong type",
        "Cast the column: `value` and `key` are string or binary, `topic` is string, `partition` "
        "int. A whole row becomes a value with `to_json(struct(*))`.",
        ("... attribute unsupported type ...",),
    ),
    Kind.IGNORED_COLUMN: Entry(
        "Warning: a column is ignored because of its case",
        "The sink's columns are written in lower case. Rename the column if it was meant.",
        ("column ... is ignored: column names are case-sensitive here",),
    ),
    Kind.ROWS_ONE_BY_ONE: Entry(
        "Warning: a slower way through an older PySpark",
        "PySpark 4.0 gives streams rows instead of Arrow batches. PySpark 4.1 and later give both.",
        ("this pyspark has no Arrow writer for streams, so rows are converted one by one",),
    ),
    Kind.NO_SUCH_COLUMN: Entry(
        "An option names a column that does not exist",
        "`keyColumns`, `valueColumns` and `headersColumns` name columns of the DataFrame, in any "
        "case, but not fields of structs. See [columns](columns.md).",
        (
            "... names a column ..., which the DataFrame does not have",
            "... names a column ..., and the DataFrame has several",
            "... names column ... twice",
        ),
    ),
    Kind.TWO_SOURCES: Entry(
        "An option and a column both define a part of the record",
        "A column `value`, `key` or `headers` would be dropped, because `valueColumns`, "
        "`keyColumns` or `headersColumns` names others for that part. See [columns](columns.md).",
        ("... is set, and there is a column ... that it does not name",),
    ),
    Kind.DATA: Entry(
        "A row can't be sent",
        "The message has the row's index in the Arrow batch and the problem, but none of its "
        "content. Spark's next attempt fails at the same row.",
    ),
    Kind.NULL_TOPIC: Entry(
        "A row has no topic",
        "A row has a null in the column `topic`, and there is no `topic` option, which would "
        "replace the column.",
        ("The Kafka message data sent to the producer contains a null topic.",),
    ),
    Kind.PARTITION_NOT_THERE: Entry(
        "A row names a partition that the topic does not have",
        "Partitions count from 0; null lets the partitioner decide.",
        ("Partition ... of topic ... with partition count ... is not present in metadata",),
    ),
    Kind.NULL_VALUE: Entry(
        "A row has a null value, and onNullValue is error",
        "A null value deletes its key from a compacted topic (a tombstone). `onNullValue=tombstone`"
        " writes it, `onNullValue=skip` leaves the row out. See [columns](columns.md#null-values).",
        ("a null value, and onNullValue is error",),
    ),
    Kind.NULL_KEY: Entry(
        "A compacted topic does not accept records without a key",
        "Before the first task the driver reads the topic's `cleanup.policy`. With `compact`, a "
        "write without a key column, or a row with a null key, is an error: brokers would reject "
        "its batch with INVALID_RECORD. Give each row a key (a column `key`, or `keyColumns`), or "
        "filter rows without one. `preflight=off` skips the check.",
        (
            "topic ... is compacted (cleanup.policy), so brokers reject every row without a key",
            "a null key, and the topic is compacted (cleanup.policy)",
        ),
    ),
    Kind.RECORD_TOO_LARGE: Entry(
        "A row is larger than the producer may send",
        "The row named in the error is larger than `kafka.max.request.size` or "
        "`kafka.buffer.memory`. Raise it, and for the first also the topic's `max.message.bytes`. "
        "The size counts before compression.",
        ("message is ... bytes when serialized which is larger than",),
    ),
    Kind.REFUSED_BY_SCHEMA: Entry(
        "A value that the schema does not accept",
        "The row has a value of the right type that the schema can't hold: a null where a value is "
        "required, a number of more bits or digits, a string that is no symbol of an enum, bytes "
        "of another length than a fixed, text that is not UTF-8. Correct or filter such rows, or "
        "use a schema that is wider.",
        ("so the row has no ...",),
    ),
    Kind.INVALID_TOPIC_NAME: Entry(
        "A row has a topic that can't be one",
        "The column `topic` holds a name with characters that Kafka does not allow, one that is "
        "empty, longer than 249 characters or not UTF-8, or that of an internal topic. With "
        "`errors.tolerance=all` such rows become [dead letters](dead-letters.md).",
        ("Topic name is invalid: it is not UTF-8",),
    ),
    Kind.INVALID_TIMESTAMP: Entry(
        "A row has a timestamp that can't be sent",
        "The column `timestamp` lies before 1970, or beyond 64 bits of milliseconds, or, where "
        "dead letters are on, outside of the topic's `message.timestamp.before.max.ms` and "
        "`message.timestamp.after.max.ms`. Null lets the producer take the time of sending.",
        ("Invalid timestamp: it lies before 1970-01-01",),
    ),
    Kind.INVALID_HEADERS: Entry(
        "A row has a header that can't be sent",
        "A null in the array `headers`, or a header whose key is null. A null value is allowed.",
    ),
    Kind.TOO_MANY_BAD_ROWS: Entry(
        "More rows can't be sent than errors.max.records or errors.max.fraction allow",
        "The batch failed as a whole: with exactly-once neither its rows nor its dead letters are "
        "visible; with at-least-once those that were sent before stay. The message has the reasons "
        "and their counts. Correct the rows, or raise the limit. See "
        "[dead letters](dead-letters.md).",
        ("... rows can't be sent, and ... is ...", "so the batch fails; ..."),
    ),
    Kind.LETTER_NOT_SENT: Entry(
        "A row can't be sent, nor can its dead letter",
        "The message has both causes: why the row became a dead letter, and why the topic of "
        "`errors.deadletterqueue.topic.name` does not accept it. Key and headers of a letter are "
        "never cut: they must fit into `kafka.max.request.size` and the topic's "
        "`max.message.bytes`.",
        ("can't be written to the dead letter queue ... either",),
    ),
    Kind.ROWS_TO_DEAD_LETTERS: Entry(
        "Rows became dead letters",
        "A warning of `errors.log.enable`: the reason, how many rows of an Arrow batch, and the "
        "numbers of the first ones within their task. See [dead letters](dead-letters.md).",
        ("... rows became dead letters",),
    ),
    Kind.SERIALIZATION: Entry(
        "A serializer does not accept a key or value",
        "The message names the serializer and the type that it was given, but not the value.",
    ),
    Kind.SCHEMA_REGISTRY: Entry(
        "The schema registry refused a request, or did not answer",
        "The message has the registry's own reason. 401 and 403: `basic.auth.user.info` or "
        "`bearer.auth.*`, and the rights to the subject. 409: the schema is not compatible with "
        "the subject's versions. 422: the registry can't read the schema. No answer: the address, "
        "a "
        "proxy (`HTTPS_PROXY`, `NO_PROXY`), a firewall; `kprod check` has a step for it. Nothing "
        "was written.",
        ("gave no answer to the request for ...",),
    ),
    Kind.SCHEMA_NOT_REGISTERED: Entry(
        "The subject does not have the schema",
        "The registry has no such schema under the subject, and `auto.register.schemas` is false "
        "here. Register it in the way that your schemas are registered, write with the subject's "
        "latest version (`use.latest.version=true`), or let the write register it "
        "(`auto.register.schemas=true`).",
        ("subject ... at ... does not have the schema of",),
    ),
    Kind.UNUSABLE_SCHEMA: Entry(
        "A schema that can't be written with",
        "The schema can't be read, is of another format than `valueFormat` says, refers to other "
        "subjects, or has rules (encryption of fields, data contracts) that are not applied here: "
        "rows would be written unencrypted. Write with another schema, or encode the column "
        "`value` yourself.",
    ),
    Kind.COLUMNS_AND_SCHEMA: Entry(
        "The columns don't fit the schema",
        "A column has no field in the schema, a field without a default has no column, or a type "
        "can't become the other. Names count first, then aliases. [Formats](formats.md) has the "
        "table of types.",
    ),
    Kind.NO_BROKER: Entry(
        "No broker answered",
        "The first line lists the addresses that were tried, and why each failed:\n\n"
        "* *Connection refused*, *no connection within ... ms*: wrong address or port, a firewall, "
        "or a broker that is down. Executors must reach the brokers, not only the driver.\n"
        "* Bootstrap works but the brokers' own addresses don't: their `advertised.listeners` name "
        "hosts that can't be reached from here.\n"
        "* *is it a TLS or SASL listener, or not Kafka?*: the port accepts the connection and does "
        "not speak plaintext Kafka: see [security](security.md) for TLS.\n"
        "* *... (does it require SASL? ...)*: the port speaks Kafka, with authenticated clients: "
        "see [SASL](security.md#sasl).",
        ("no broker answered within ... ms",),
    ),
    Kind.TOPIC_NOT_PRESENT: Entry(
        "The topic does not exist",
        "Brokers answered, but none of them has the topic, and they don't create it; the hint has "
        "their error. Create it, or check its name. A principal that may not DESCRIBE a topic may "
        "get the same error for an existing one.",
        ("not present in metadata after ... ms.",),
    ),
    Kind.MALFORMED_ANSWER: Entry(
        "A malformed response",
        "Something between here and the broker is not Kafka, or changes bytes: a proxy, a wrong "
        "port. The connection was closed.",
        ("the broker's answer is malformed",),
    ),
    Kind.WRONG_LISTENER: Entry(
        "The port speaks TLS, and this client does not",
        "Set `kafka.security.protocol` to SSL or SASL_SSL, or take the port of the PLAINTEXT "
        "listener.",
        ("the broker answered with TLS",),
    ),
    Kind.TIMEOUT: Entry(
        "A timeout expired",
        "The message says which, and the last response. `kafka.max.block.ms` bounds the waits of a "
        "caller, `kafka.request.timeout.ms` one request.",
    ),
    Kind.NO_LEADER: Entry(
        "A partition has no leader",
        "Brokers are down, or the topic was created a moment ago.",
        ("partitions of ... have no leader after ... ms.",),
    ),
    Kind.TOPIC_LIMIT: Entry(
        "The topic's settings don't fit the producer's",
        "A warning before the first task. A batch is cut at `kafka.batch.size`; one above the "
        "topic's `max.message.bytes` is rejected (MESSAGE_TOO_LARGE), split, and sent again, which "
        "costs time, and a single row above it fails the job. With another `compression.type` on "
        "the topic, brokers recompress every batch.",
        ("topic ... takes batches of at most ... bytes", "brokers recompress each of them"),
    ),
    Kind.UNRESOLVED_ADDRESS: Entry(
        "A bootstrap server's name can't be resolved",
        "As an error: none of them can, on the host of the message. As a warning: some can't, and "
        "the others are used. Executors resolve names, too, not only the driver.",
        (
            "No resolvable bootstrap urls given in bootstrap.servers",
            "bootstrap server ... can't be resolved now: ...",
        ),
    ),
    Kind.OTHER_CLUSTER: Entry(
        "Warning: the addresses lead to another cluster",
        "The cluster's id changed while a producer was running: a name now points to another "
        "cluster, or a proxy has two clusters behind it. Later rows go to the other cluster.",
        ("the cluster's id was ... and is ...: the addresses lead to another cluster",),
    ),
    Kind.NO_SUCH_LISTENER: Entry(
        "Warning: leaders lack the requested listener",
        "The brokers that lead these partitions have no listener of the name that the bootstrap "
        "server has, so their address is unknown. Set `listeners` and `advertised.listeners` "
        "alike on all brokers.",
        ("the leaders of ... partitions have no listener of the bootstrap servers' name: ...",),
    ),
    Kind.NOT_CONNECTED: Entry(
        "Warning: a connection to a broker failed",
        "It is retried, with exponential backoff; the line comes once for each reason. When no "
        "broker answers in time, an error lists all of them (KP0301).",
        ("node ... at", "bootstrap server"),
    ),
    Kind.AUTHENTICATION: Entry(
        "The client could not authenticate",
        "A wrong user, password, certificate or token, or an identity provider that gave none. Not "
        "retried. [What a failure means](security.md#what-a-failure-means).",
    ),
    Kind.NO_NEW_CREDENTIAL: Entry(
        "Warning: a token or credential could not be renewed",
        "The previous one is used until it expires, and the renewal is retried. If it keeps "
        "failing, new and re-authenticated connections will fail: check the token endpoint, or the "
        "code that provides credentials. [What a failure means]"
        "(security.md#what-a-failure-means).",
        ("no new credential: ...",),
    ),
    Kind.DELIVERY: Entry(
        "Rows were not acknowledged",
        "The batch that failed first; the rest of the line is the cause. The task fails, and Spark "
        "may run it again.",
    ),
    Kind.EXPIRED: Entry(
        "A batch was not delivered in time",
        "A batch could not be delivered within `kafka.delivery.timeout.ms`. The end of the line "
        "has the last response and its broker, or that there was none, or why the batch was never "
        "sent.",
        ("Expiring ... record(s) for ...: ... ms has passed since batch creation",),
    ),
    Kind.BUFFER_EXHAUSTED: Entry(
        "buffer.memory stayed exhausted",
        "Brokers accept rows more slowly than they are sent, or not at all; the line has their "
        "last response. If they are only slow for a while, raise `kafka.delivery.timeout.ms` (and "
        "remove `kafka.max.block.ms`, or raise it too).",
        ("buffer.memory (... bytes) stayed exhausted for ... ms while ... bytes were needed",),
    ),
    Kind.RATE_TOO_LOW: Entry(
        "The rate limit is too low for the transaction's timeout",
        "With exactly-once a task's rows must be written within `kafka.transaction.timeout.ms` of "
        "its first row, and `maxRecordsPerSecond` or `maxBytesPerSecond` is too low for its number "
        "of rows. Raise the rate or that timeout, or give a micro-batch fewer rows "
        "(`maxOffsetsPerTrigger`). See [tuning](tuning.md#a-limit-of-your-own).",
        ("... more rows take ... ms at ..., and its transaction has ... ms left",),
    ),
    Kind.WRITE_FAILED: Entry(
        "Warning: a write failed, and rows of it stay in Kafka",
        "With at-least-once nothing is rolled back. Rows that Spark writes again are duplicates. "
        "The cause is the error of the job or query. [Guarantees](delivery-guarantees.md).",
        ("kprod write... failed: ... of ... tasks had finished...; their ... rows",),
    ),
    Kind.COMMIT: Entry(
        "The driver can't confirm a batch",
        "Nothing of the batch became visible, unless the message says so. The state of "
        "the cluster is shown by `kprod txn describe PREFIX` ([the command line](cli.md)). A batch "
        "that is not the expected one: the checkpoint was deleted, copied or restored, or two "
        "queries have one prefix. Two queries: give this one a prefix of its own. A checkpoint "
        "that was deleted on purpose: `kprod txn reset PREFIX`; what its source still has is "
        "then written again. Transactions that are not open any more were open for longer than "
        "`kafka.transaction.timeout.ms`: see [how to choose "
        "it](delivery-guarantees.md#how-to-choose-the-time-out).",
        (
            "is about to write batch ...",
            "transactions are not open any more",
            "run ... of '...' was aborted, and commits nothing any more",
        ),
    ),
    Kind.NO_COMMIT_MESSAGE: Entry(
        "Tasks sent no commit message",
        "With the continuous trigger Spark never calls a Python sink. Use "
        '`trigger(processingTime="1 second")`.',
        ("tasks sent no commit message (first: task ...), so their rows can't be confirmed",),
    ),
    Kind.VERSIONS_DIFFER: Entry(
        "Driver and executor have different versions of the package",
        "Install the same version everywhere. On Databricks, restart Python after `%pip install`.",
        ("spark-kafka-sink is ... on the driver and ... on this executor",),
    ),
    Kind.NOT_INSTALLED_FOR_WORKERS: Entry(
        "Warning: Spark's Python workers run an interpreter without this package",
        "Spark starts `python3` of the `PATH`, unless `PYSPARK_PYTHON` names another one. Activate "
        "the virtual environment, or set `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` to its "
        "interpreter before the session starts.",
        ("Spark runs its Python workers with ..., which can't import spark_kafka_sink",),
    ),
    Kind.OUTCOME_UNKNOWN: Entry(
        "Whether a batch was committed is not known",
        "The brokers didn't answer in time. Nothing was undone. Start the query, or the job with "
        "the same `txnVersion`, again: it resolves the batch.",
        ("whether batch ... of '...' was decided is not known",),
    ),
    Kind.PARTIAL_COMMIT: Entry(
        "A batch is committed in part",
        "A driver was away for longer than `kafka.transaction.timeout.ms` after its decision. "
        "Choose between missing rows and duplicate rows: "
        "[what an operator does](delivery-guarantees.md#what-an-operator-does).",
        ("batch ... of '...' is committed in part",),
    ),
    Kind.SUPERSEDED: Entry(
        "Another driver has taken over",
        "The query was started a second time, an operator aborted its transactions, or another "
        "query has the same prefix. The later one continues. Nothing of the earlier one's last "
        "batch is visible, unless the later one wrote it. If none of this was intended, check the "
        "prefix (`kprod txn describe PREFIX`), then restart the query.",
        ("another driver has taken over '...': run ...", "another run has taken over '...'"),
    ),
    Kind.REFUSED: Entry(
        "An operator's command was refused",
        "It contradicts a decision, or names something that does not exist. Nothing was changed. "
        "Where the command has `--force`, that overrides the check: [the command line](cli.md).",
    ),
    Kind.TRANSACTION_ABORTED: Entry(
        "Never sent, because its transaction was aborted",
        "The cause is the error for which the transaction was aborted.",
    ),
    Kind.WRITE_ABORTED: Entry(
        "Warning: a write failed, and its transactions are aborted",
        "Consumers that read committed see nothing of it. The cause is the error of the job or "
        "query. The cluster's state is shown by `kprod txn describe PREFIX`.",
        ("of their ... rows nothing is visible to read_committed consumers",),
    ),
    Kind.NOT_ABORTED: Entry(
        "Warning: a write failed, and its transactions stay open",
        "Brokers abort them after `kafka.transaction.timeout.ms`, or the next start of the query "
        "does earlier. Until then, consumers that read committed wait: "
        "`kprod txn sweep PREFIX` aborts them immediately ([the command line](cli.md)).",
        ("... failed, and its transactions could not be aborted (...)",),
    ),
    Kind.DECIDED_NOT_ABORTED: Entry(
        "Warning: Spark aborted a batch that was decided",
        "The next start of the query commits the batch. To commit it now: `kprod txn commit KEY` "
        "([the command line](cli.md)).",
        ("batch ... of '...' is decided, so it is not aborted",),
    ),
    Kind.ORPHANS_UNSEEN: Entry(
        "Warning: earlier tasks' open transactions were not searched",
        "A broker did not respond, or the run was not known. Transactions that are open there are "
        "aborted by a later commit, or when they time out; consumers that read committed wait "
        "until then. `kprod txn list PREFIX` shows them ([the command line](cli.md)).",
        (
            "no clear answer in time to the abort of",
            "orphaned transactions could not be searched",
            "kprod abort: no task reported its run",
        ),
    ),
    Kind.BATCH_UNDONE: Entry(
        "Warning: a decided batch was aborted as a whole",
        "Its driver was away for too long of `kafka.transaction.timeout.ms`: brokers had aborted "
        "transactions of it, or were about to, before any of it was visible. A query writes it "
        "again when it is started; a job must be run again. "
        "[How to choose the time](delivery-guarantees.md#how-to-choose-the-time-out).",
        ("batch ... was decided, and brokers had aborted some of its transactions",),
    ),
    Kind.DONE_NOT_NOTED: Entry(
        "Warning: a batch is committed, and the commit log does not say so",
        "The next start commits its transactions again, which changes nothing. The line has the "
        "brokers' reason: fix that before the next batch.",
        ("the batch is committed, but could not be recorded as done: ...",),
    ),
    Kind.COMMIT_LOG_EMPTY: Entry(
        "Warning: the commit log has no entry for a query that has run before",
        "Expected once when a query changes to exactly-once, or to another prefix. Otherwise the "
        "topic of `commitLogTopic` was deleted, and a batch that Spark runs again may come twice.",
        ("the commit log has no entry for it, and this is batch ...",),
    ),
    Kind.COMMIT_LOG_AT_RISK: Entry(
        "Warning: the commit log's topic can lose decisions",
        "Set `min.insync.replicas=2` and `unclean.leader.election.enable=false` on it, as the line "
        "says. [The commit log](delivery-guarantees.md).",
        (
            "commitLogTopic '...' has unclean.leader.election.enable=true",
            "commitLogTopic '...' has ... replicas and min.insync.replicas=1",
        ),
    ),
    Kind.NOTHING_WRITTEN: Entry(
        "Nothing is written: that version is committed",
        "The commit log has this `txnVersion`, or a later one, of this `txnAppId`. For a restarted "
        "job that is expected. As a warning, the version is *older* than the last one and may "
        "never have been written: use a separate `txnAppId` for a backfill. "
        "[Jobs that can be run again](delivery-guarantees.md).",
        ("kprod writes nothing: version ... of txnAppId '...' counts as committed",),
    ),
    Kind.USER_CODE: Entry(
        "Warning: a callback, an interceptor or a listener raised an error",
        "The producer continues without it. The line has the error's class and its location in the "
        "code, but not its text, which may contain a row.",
        (
            "Error executing interceptor onSend callback",
            "Error executing user-provided callback on message for topic-partition '...-...'",
            "a done callback of a record raised ...",
            "Failed to close producer ...: ...",
            "... failed on the cluster's id: ...",
        ),
    ),
    Kind.CLOSE_IN_CALLBACK: Entry(
        "Warning: close was called from a callback",
        "A callback runs in the thread that would have to send the rest, so nothing more is sent. "
        "Call `close()` from another thread.",
        ("Overriding close timeout ... ms to 0 ms",),
    ),
    Kind.REPORT_NOT_WRITTEN: Entry(
        "Warning: a report could not be delivered",
        "One destination of the [report](reports.md) of a write failed; the write and the other "
        "destinations are not affected. The driver's log has the figures in one line.",
        ("a report can't be delivered: ...", "a task's progress can't be delivered: ..."),
    ),
    Kind.NO_REPORTS_KEPT: Entry(
        "The driver keeps no reports",
        "`last_report` requests the last report from the driver, which keeps it in the directory "
        "that Spark gives to its Python processes. It is not available when Spark gives them none, "
        "or isolates them, or when the driver's spark-kafka-sink is older. "
        "The options `reportPath`, `reportTopic` and `reportListeners` do not depend on it: "
        "[reports](reports.md).",
        (
            "the driver keeps no reports: ...",
            "the driver's spark-kafka-sink is older, and keeps no reports",
        ),
    ),
    Kind.ILLEGAL_STATE: Entry(
        "A bug, or a call in a state that forbids it",
        "In a `KafkaProducer`: a method was called out of order, or after `close()`. In a Spark "
        "job it is a bug of this package: please report it, with the whole stack.",
    ),
}
