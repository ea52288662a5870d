"""The kinds of errors: each with a code that stays, and what is to be done about it.

Owns: :class:`Kind` (``KP0301`` and so on), and what docs/errors.md and ``kprod explain`` say of
each. Never: a message. An exception class has a kind (``errors.py``), a raise site may name a
narrower one, and an answer of a broker has the kind of its own code (``KP1`` and its number).

A code is never given to another kind, and never changed: people search for it, and link to it.
The first two digits are the area: 01 options, 02 columns and rows, 03 reaching brokers, 04 who we
are, 05 delivery, 06 commit and exactly-once, 09 bugs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Final


@unique
class Kind(StrEnum):
    """A kind of error, as its code."""

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

    SCHEMA = "KP0200"
    MISSING_VALUE_COLUMN = "KP0201"
    NO_TOPIC = "KP0202"
    COLUMN_TYPE = "KP0203"
    DATA = "KP0210"
    NULL_TOPIC = "KP0211"
    PARTITION_NOT_THERE = "KP0212"
    RECORD_TOO_LARGE = "KP0213"
    SERIALIZATION = "KP0220"

    NO_BROKER = "KP0301"
    TOPIC_NOT_PRESENT = "KP0302"
    MALFORMED_ANSWER = "KP0303"
    WRONG_LISTENER = "KP0304"
    TIMEOUT = "KP0305"
    NO_LEADER = "KP0306"
    TOPIC_LIMIT = "KP0307"

    AUTHENTICATION = "KP0401"

    DELIVERY = "KP0500"
    EXPIRED = "KP0501"
    BUFFER_EXHAUSTED = "KP0502"

    COMMIT = "KP0600"
    NO_COMMIT_MESSAGE = "KP0601"
    VERSIONS_DIFFER = "KP0602"
    OUTCOME_UNKNOWN = "KP0610"
    PARTIAL_COMMIT = "KP0611"
    SUPERSEDED = "KP0612"
    REFUSED = "KP0613"
    TRANSACTION_ABORTED = "KP0614"

    ILLEGAL_STATE = "KP0900"

    @property
    def kp_code(self) -> str:
        """``KP0301``: what is shown, and the anchor of docs/errors.md."""
        return self.value


@dataclass(frozen=True, slots=True)
class Entry:
    """What is said of a kind: ``title`` in a few words, ``says`` the messages it is seen with
    (``...`` for what differs), ``advice`` in Markdown.
    """

    title: str
    advice: str
    says: tuple[str, ...] = ()


ENTRIES: Final[Mapping[Kind, Entry]] = {
    Kind.UNSPECIFIED: Entry(
        "What has no kind of its own",
        "The message says all that is known. An error that an operation on a closed or failed "
        "producer raises is the consequence of an earlier one: look for that in the log.",
    ),
    Kind.CONFIG: Entry(
        "An option is wrong",
        "It is out of bounds, or contradicts another; the hint says what to change. "
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
        "`kafka.`. The hint for a line of a `configFile` is the same, and the file stands behind "
        "the name. [Every option](options.md).",
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
        "An option has a value that it does not take",
        "The value has the wrong type or is out of bounds; the hint says what the option takes.",
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
        "A bootstrap server is no address",
        "An address is `host:port`. The port is missing, an IPv6 address lacks its brackets, or "
        "something stands before the host.",
        ("Invalid url in bootstrap.servers: ...", "Invalid port in bootstrap.servers: ..."),
    ),
    Kind.UNSUPPORTED_OPTION: Entry(
        "An option whose work this version does not do",
        "The Java client has it (a class of the JVM, two-phase commit). It is refused instead of "
        "left out; the hint says what to use.",
        ("... is not supported by this version",),
    ),
    Kind.NO_EFFECT: Entry(
        "A security setting would have no effect",
        "Most often `kafka.security.protocol` is missing, and the rows would go over the network "
        "in the clear. Set it to what the hint says, or remove the other options "
        "([what would have no effect](security.md#what-would-have-no-effect)). A store that is "
        "given twice: keep the one that is meant.",
        (
            "... would have no effect, because ... is ...",
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
        "A kind of write that a topic can't take",
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
        "A reference to a secret leads nowhere",
        "`${env:NAME}` and `${file:/path}` are looked up on the driver and on each executor: the "
        "message says on which host and in which of them it failed. "
        "[How secrets travel](security.md).",
    ),
    Kind.SCHEMA: Entry(
        "The columns don't fit a Kafka sink",
        "What the sink takes: [columns](options.md). Extra columns are ignored, but Spark can't "
        "hand every type, or two columns of one name, to a Python sink: drop or rename them.",
    ),
    Kind.MISSING_VALUE_COLUMN: Entry(
        "There is no column value",
        "The DataFrame needs a column `value`, in lower case. A whole row becomes one with "
        "`to_json(struct(*))`.",
        ("Required attribute 'value' not found",),
    ),
    Kind.NO_TOPIC: Entry(
        "There is neither the option topic nor a column",
        "Set the option `topic`, or add a column `topic` (a string, in lower case).",
        ("topic option required when no 'topic' attribute is present.",),
    ),
    Kind.COLUMN_TYPE: Entry(
        "A column has the wrong type",
        "Cast the column: `value` and `key` are string or binary, `topic` is string, `partition` "
        "int. A whole row becomes a value with `to_json(struct(*))`.",
        ("... attribute unsupported type ...",),
    ),
    Kind.DATA: Entry(
        "A row can't be sent",
        "The message names the row by its place in the Arrow batch, and what is wrong with it, but "
        "none of its content. Spark's next attempt meets the same row.",
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
    Kind.RECORD_TOO_LARGE: Entry(
        "A row is larger than the producer may send",
        "The row named in the error is larger than `kafka.max.request.size` or "
        "`kafka.buffer.memory`. Raise it, and for the first also the topic's `max.message.bytes`. "
        "The size counts before compression.",
        ("message is ... bytes when serialized which is larger than",),
    ),
    Kind.SERIALIZATION: Entry(
        "A serializer does not take a key or value",
        "The message names the serializer and the type that it was given, but not the value.",
    ),
    Kind.NO_BROKER: Entry(
        "No broker answered",
        "The first line lists the addresses that were tried, and why each failed:\n\n"
        "* *Connection refused*, *no connection within ... ms*: wrong address or port, a firewall, "
        "or a broker that is down. Executors must reach the brokers, not only the driver.\n"
        "* Bootstrap works but the brokers' own addresses don't: their `advertised.listeners` name "
        "hosts that can't be reached from here.\n"
        "* *is it a TLS or SASL listener, or not Kafka?*: the port takes the connection and does "
        "not speak Kafka in the open: see [security](security.md) for TLS.\n"
        "* *when it was asked for more (does it want SASL? ...)*: the port speaks Kafka, with "
        "those who say who they are: see [SASL](security.md#sasl).",
        ("no broker answered within ... ms",),
    ),
    Kind.TOPIC_NOT_PRESENT: Entry(
        "The topic is not there",
        "Brokers answered, but none of them knows the topic, and they don't create it; the hint "
        "has their answer. Create it, or check its name. To a principal that may not DESCRIBE it, "
        "a topic may look as if it were missing.",
        ("not present in metadata after ... ms.",),
    ),
    Kind.MALFORMED_ANSWER: Entry(
        "An answer that is not Kafka's",
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
        "A time limit passed",
        "The message says which, and what was heard last. `kafka.max.block.ms` bounds what a "
        "caller waits for, `kafka.request.timeout.ms` one request.",
    ),
    Kind.NO_LEADER: Entry(
        "A partition has no leader",
        "Brokers are down, or the topic was created a moment ago.",
        ("partitions of ... have no leader after ... ms.",),
    ),
    Kind.TOPIC_LIMIT: Entry(
        "The topic's settings don't fit the producer's",
        "A warning before the first task. A batch is cut at `kafka.batch.size`; one above the "
        "topic's `max.message.bytes` is refused (MESSAGE_TOO_LARGE), split, and sent again, which "
        "costs time, and a single row above it fails the job. A topic with a `compression.type` of "
        "its own has brokers compress again what comes with another.",
        ("topic ... takes batches of at most ... bytes", "brokers compress each of them again"),
    ),
    Kind.AUTHENTICATION: Entry(
        "We could not say who we are",
        "A wrong user, password, certificate or token, or an identity provider that gave none. Not "
        "retried. [What a failure means](security.md#what-a-failure-means).",
    ),
    Kind.DELIVERY: Entry(
        "Rows were not acknowledged",
        "The batch that failed first; the rest of the line is the cause. The task fails, and Spark "
        "may run it again.",
    ),
    Kind.EXPIRED: Entry(
        "A batch was not delivered in time",
        "A batch could not be delivered within `kafka.delivery.timeout.ms`. The end of the line "
        "says what which broker answered last, or that it never answered, or why the batch was "
        "never sent.",
        ("Expiring ... record(s) for ...: ... ms has passed since batch creation",),
    ),
    Kind.BUFFER_EXHAUSTED: Entry(
        "buffer.memory stayed used up",
        "Brokers take rows more slowly than they come, or not at all; the line has their last "
        "answer. When they are only slow for a while, raise `kafka.delivery.timeout.ms` (and "
        "remove `kafka.max.block.ms`, or raise it too).",
        ("buffer.memory (... bytes) stayed used up for ... ms while ... bytes were wanted",),
    ),
    Kind.COMMIT: Entry(
        "The driver can't vouch for a batch",
        "Nothing of the batch became visible, unless the message says so. What stands in the "
        "cluster is told by `kprod txn describe PREFIX` ([the command line](cli.md)). A batch "
        "that is not the expected one: the checkpoint was deleted, copied or put back, or two "
        "queries have one prefix. Two queries: give this one a prefix of its own. A checkpoint "
        "that was deleted on purpose: `kprod txn reset PREFIX`; what its source still has is "
        "then written again. Transactions that are not open any more were open for longer than "
        "`kafka.transaction.timeout.ms`: see [how to choose "
        "it](delivery-guarantees.md#how-to-choose-the-time-out).",
        (
            "wants to write batch ...",
            "transactions are not open any more",
            "run ... of '...' was aborted, and commits nothing any more",
        ),
    ),
    Kind.NO_COMMIT_MESSAGE: Entry(
        "Tasks sent no commit message",
        "With the continuous trigger Spark never calls a Python sink. Use "
        '`trigger(processingTime="1 second")`.',
        ("tasks sent no commit message (first: task ...), so their rows can't be vouched for",),
    ),
    Kind.VERSIONS_DIFFER: Entry(
        "Driver and executor have different versions of the package",
        "Install the same version everywhere. On Databricks, restart Python after `%pip install`.",
        ("spark-kafka-sink is ... on the driver and ... on this executor",),
    ),
    Kind.OUTCOME_UNKNOWN: Entry(
        "Whether a batch was committed is not known",
        "The brokers didn't answer in time. Nothing was undone. Start the query, or the job with "
        "the same `txnVersion`, again: it finds out.",
        ("whether batch ... of '...' was decided is not known",),
    ),
    Kind.PARTIAL_COMMIT: Entry(
        "A batch is committed in part",
        "A driver stayed away for longer than `kafka.transaction.timeout.ms` after its decision. "
        "Decide between the rows that are missing and rows that come twice: "
        "[what an operator does](delivery-guarantees.md#what-an-operator-does).",
        ("batch ... of '...' is committed in part",),
    ),
    Kind.SUPERSEDED: Entry(
        "Another driver has taken over",
        "The query was started a second time, an operator ended its transactions, or another query "
        "has the same prefix. The later one goes on. Nothing of the earlier one's last batch is "
        "visible, unless the later one wrote it. When none of it was meant: look at the prefix "
        "(`kprod txn describe PREFIX`), then start the query again.",
        ("another driver has taken over '...': run ...", "another run has taken over '...'"),
    ),
    Kind.REFUSED: Entry(
        "An operator's command was refused",
        "It contradicts a decision, or what it names is not there. Nothing was changed. `--force` "
        "does it all the same, where there is such an option: [the command line](cli.md).",
    ),
    Kind.TRANSACTION_ABORTED: Entry(
        "Never sent, because its transaction was aborted",
        "The cause is the error that the transaction was aborted for.",
    ),
    Kind.ILLEGAL_STATE: Entry(
        "A bug, or a call in a state that forbids it",
        "In a `KafkaProducer`: a method was called out of order, or after `close()`. In a Spark "
        "job it is a bug of this package: please report it, with the whole stack.",
    ),
}
