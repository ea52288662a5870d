"""All exceptions of this package, the table of the brokers' error codes, and the form of warnings.

The table follows Kafka's ``common/protocol/Errors.java``. For each error code it has the class of
the exception, the meaning, the hint, and the producer's reaction. The reactions follow Java's
``Sender`` and ``TransactionManager``.

An exception is called ``XError`` if Java calls it ``XException``. All exceptions are picklable,
because Spark sends them from a worker to the driver. No exception contains a secret, or the value,
key or header of a record.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar

from spark_kafka_sink.base.documentation import error_url, where_to_read
from spark_kafka_sink.base.error_kinds import Kind

#: The most warnings that are remembered. There is a limit, because a text can contain a value that
#: is new each time.
_MOST_REMEMBERED = 1_000

_said: set[str] = set()


def coded(code: str, text: str, hint: str | None = None) -> str:
    """Formats an error or a warning as one line: its code, ``text``, the hint, and the link to the
    documentation.
    """
    return f"[{code}] {text} ({'' if hint is None else f'{hint}; '}see {where_to_read(code)})"


def warn(
    log: logging.Logger, code: str, text: str, *values: object, level: int = logging.WARNING
) -> None:
    """Logs the warning ``text % values`` with its code, at the log level ``level``."""
    if log.isEnabledFor(level):
        log.log(level, "%s", coded(code, text % values), stacklevel=2)


def warn_once(log: logging.Logger, lines: Iterable[str]) -> None:
    """Logs each of ``lines`` as a warning, once in this process. Each line includes the code of its
    warning.

    At most 1000 logged lines are remembered. Then all are forgotten, and a line can be logged
    again.
    """
    for line in lines:
        if line in _said:
            continue
        if len(_said) >= _MOST_REMEMBERED:
            _said.clear()
        _said.add(line)
        log.warning("%s", line, stacklevel=2)


class ErrorCode(IntEnum):
    """The error codes of brokers. A number that is not in this list is decoded as
    UNKNOWN_SERVER_ERROR (``protocol/wire.py``).
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    GROUP_ID_NOT_FOUND = 69
    UNKNOWN_LEADER_EPOCH = 75
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNSUPPORTED_COMPRESSION_TYPE = 76
    THROTTLING_QUOTA_EXCEEDED = 89
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    TRANSACTION_ABORTABLE = 120
    REBOOTSTRAP_REQUIRED = 129

    @property
    def kp_code(self) -> str:
        """The code in messages: ``KP1`` and the three digits of the error code. For the error code
        -1, the code in messages is KP1999.
        """
        return f"KP1{self.value % 1000:03}"

    @property
    def info(self) -> CodeInfo:
        return CODES[self]

    @property
    def text(self) -> str:
        """The name, the number and the meaning of the error code, for messages."""
        return f"{self.name} ({self.value}): {self.info.meaning}"

    @property
    def retriable(self) -> bool:
        """True if a request that got this error may succeed when it is sent again later.

        The result is always False for the error codes about sequence numbers, because a producer
        handles these by other rules.
        """
        return CODES[self].error_class in _RETRIABLE

    @property
    def refreshes_metadata(self) -> bool:
        return CODES[self].error_class is ErrorClass.REFRESH_METADATA

    def error(self, where: str, message: str | None = None) -> ApiError:
        """Creates the exception for this error code. ``where`` is the place for the message, such
        as the topic partition and the broker.

        ``message`` is the error message of the broker, or None. It is escaped, and cut to 200
        characters.
        """
        info = CODES[self]
        text = safe_text(message) if message else info.meaning
        return info.error_type(
            f"{where}: {self.name} ({self.value}): {text}", hint=info.hint, code=self, kind=self
        )


class KafkaError(Exception):
    """The base class of all exceptions of this package.

    ``message`` is one line with the cause and the place. ``hint`` tells the user what to check or
    to do, or is None. ``kind`` has the code of the error (``kp_code``):

    * an :class:`ErrorCode`, if a broker returned the error,
    * otherwise a :class:`Kind`. The default is the ``default_kind`` of the class.
    """

    default_kind: ClassVar[Kind] = Kind.UNSPECIFIED
    kind: Kind | ErrorCode

    def __init__(
        self, message: str, *, hint: str | None = None, kind: Kind | ErrorCode | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.kind = self.default_kind if kind is None else kind

    @property
    def url(self) -> str | None:
        """The URL of the documentation of this kind of error, for this version of the package. None
        if no documentation site is set.
        """
        return error_url(self.kind.kp_code)

    def __str__(self) -> str:
        """Two lines: the code and the message, then the hint and the link to the documentation."""
        see = f"see {where_to_read(self.kind.kp_code)}"
        more = see if self.hint is None else f"hint: {self.hint}; {see}"
        return f"[{self.kind.kp_code}] {self.message}\n  {more}"

    def one_line(self) -> str:
        """The error on one line, for logs with one line for each event."""
        return coded(self.kind.kp_code, self.message, self.hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self._fields()))

    def _fields(self) -> dict[str, Any]:
        """All attributes except ``message`` and ``hint``. Pickling saves these attributes in
        addition to ``message`` and ``hint``.
        """
        return {k: v for k, v in self.__dict__.items() if k not in ("message", "hint")}


def _rebuild(
    cls: type[KafkaError], message: str, hint: str | None, fields: dict[str, Any]
) -> KafkaError:
    error = cls.__new__(cls)
    KafkaError.__init__(error, message, hint=hint)
    error.__dict__.update(fields)
    return error


class ConfigError(KafkaError, ValueError):
    """An option is unknown or has an invalid value, or two options contradict each other (Java's
    ConfigException).
    """

    default_kind = Kind.CONFIG


class SchemaError(KafkaError, ValueError):
    """The DataFrame has invalid columns for a write to Kafka."""

    default_kind = Kind.SCHEMA


class SchemaRegistryError(KafkaError, RuntimeError):
    """A schema registry rejected a request, or did not respond."""

    default_kind = Kind.SCHEMA_REGISTRY


class NoRegistryAnswerError(SchemaRegistryError):
    """A schema registry did not respond in time."""


class DataError(KafkaError, ValueError):
    """A row can't be sent. Examples of causes are a null topic, and the number of a partition that
    does not exist.
    """

    default_kind = Kind.DATA


class SerializationError(KafkaError, ValueError):
    """A serializer can't convert the key or the value of a record."""

    default_kind = Kind.SERIALIZATION


class IllegalStateError(KafkaError, RuntimeError):
    """A method was called in a state that does not allow this call. This is a bug in the calling
    code or in this package.
    """

    default_kind = Kind.ILLEGAL_STATE


class RemoteProtocolError(KafkaError):
    """A broker has sent bytes that do not follow Kafka's protocol. The connection is closed,
    because it is unknown where the next response begins.
    """

    default_kind = Kind.MALFORMED_ANSWER


class WrongListenerError(RemoteProtocolError):
    """The broker has responded with TLS to a connection without TLS. So the address belongs to a
    listener with another security protocol. The client does not retry.
    """

    default_kind = Kind.WRONG_LISTENER


class DeliveryError(KafkaError):
    """Some rows were not acknowledged, or it is not certain that all rows were acknowledged. The
    write fails. Rows that were acknowledged stay in the topic, even if Spark writes all rows again.
    """

    default_kind = Kind.DELIVERY


class BatchError(KafkaError):
    """A batch with deliveryGuarantee=exactly-once has failed.

    The subclass shows two things: whether consumers with read_committed see rows of the batch, and
    whether the batch can be written again. After a :class:`CommitError`, it is safe to write the
    batch again.
    """

    default_kind = Kind.COMMIT


# No subclass inherits from another one: "except CommitError" must never catch the error of a batch
# with visible rows.
class CommitError(BatchError):
    """No row of this write is visible, and none will become visible. You can write the batch again:
    the same micro-batch, or the same ``txnVersion``. If the cause of the error remains, the next
    write fails as well.

    An example of such a cause: the number of the batch does not follow the last number in the
    commit log. Then an earlier write may have committed other rows with this number.
    """


class CommitLogError(BatchError):
    """The record of this query or job in the commit log is damaged, or a newer version of this
    package wrote it. Nothing was changed. It is unknown whether the last batch is committed.
    """

    default_kind = Kind.COMMIT_LOG_DAMAGED


class _TransactionsError(BatchError):
    """The base class of errors that name transactions. ``transactional_ids`` has the ids of these
    transactions.
    """

    transactional_ids: tuple[str, ...]

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        transactional_ids: tuple[str, ...] = (),
        kind: Kind | ErrorCode | None = None,
    ) -> None:
        super().__init__(message, hint=hint, kind=kind)
        self.transactional_ids = transactional_ids


class CommitOutcomeUnknownError(_TransactionsError):
    """The driver has sent the commit, and no definite response arrived before the timeout. It is
    possible that the rows of the batch are visible now, or become visible later. Nothing was rolled
    back. The next start of the query finds out the outcome.
    """

    default_kind = Kind.OUTCOME_UNKNOWN


class PartialCommitError(_TransactionsError):
    """The driver had decided to commit a batch, but brokers have aborted some of its transactions.
    The rows of these transactions are missing, and the other rows of the batch are visible. An
    operator must resolve this (docs/runbook.md).
    """

    default_kind = Kind.PARTIAL_COMMIT


class SupersededError(BatchError):
    """Another driver has taken over this query, another driver uses the same
    ``transactionalIdPrefix``, or the run of this driver was aborted. This driver must stop. No row
    that this driver has written for the batch is visible, and none will become visible.
    """

    default_kind = Kind.SUPERSEDED


class RefusedError(KafkaError):
    """An operator's command contradicts a decision in the commit log, or names something that does
    not exist. The command has changed nothing.
    """

    default_kind = Kind.REFUSED


class ApiError(KafkaError):
    """An error that Kafka's protocol defines (Java's ApiException).

    ``code`` is the error code that the broker has returned. If the client itself has detected the
    error, ``code`` is the error code with the same meaning.
    """

    default_code: ClassVar[ErrorCode | None] = None
    code: ErrorCode

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: ErrorCode | None = None,
        kind: Kind | ErrorCode | None = None,
    ) -> None:
        code = self.default_code if code is None else code
        if kind is None and self.default_kind is Kind.UNSPECIFIED:
            kind = code
        super().__init__(message, hint=hint, kind=kind)
        self.code = ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code


class RetriableError(ApiError):
    """The request failed, but may succeed when it is sent again later."""


class InvalidMetadataError(RetriableError):
    """The client's metadata is out of date. The same request may succeed after the client has
    updated its metadata.
    """


class DisconnectError(InvalidMetadataError):
    """The connection was closed before the response arrived (Java's NetworkException)."""


class KafkaTimeoutError(RetriableError):
    """A time limit is over, such as ``max.block.ms``, ``request.timeout.ms`` or
    ``delivery.timeout.ms``.
    """

    default_kind = Kind.TIMEOUT
    default_code = ErrorCode.REQUEST_TIMED_OUT


class BufferExhaustedError(KafkaTimeoutError):
    """No memory of ``buffer.memory`` became free within ``max.block.ms``."""

    default_kind = Kind.BUFFER_EXHAUSTED


class CoordinatorError(RetriableError):
    """The transaction coordinator has moved to another broker, or is still loading the state of its
    transactions. The producer looks up the coordinator and retries.
    """


class AuthenticationError(ApiError):
    """The broker rejected the client's credentials. The client does not retry."""

    default_kind = Kind.AUTHENTICATION


class AuthorizationError(ApiError):
    """The client is not authorized for the request. The client does not retry."""


class InvalidTopicError(ApiError):
    """The name of the topic is not valid, or only brokers may write to the topic."""

    default_code = ErrorCode.INVALID_TOPIC_EXCEPTION


class RecordTooLargeError(ApiError):
    """A record or a batch is larger than ``max.request.size``, ``buffer.memory`` or a limit of the
    broker. A batch that is larger than ``max.message.bytes`` of the topic is first split, down to
    single records.
    """

    default_kind = Kind.RECORD_TOO_LARGE
    default_code = ErrorCode.MESSAGE_TOO_LARGE


class InvalidRecordError(ApiError):
    """The broker rejected the content of a record, such as a record without a key in a compacted
    topic.
    """

    default_code = ErrorCode.INVALID_RECORD


class CorruptRecordError(RetriableError):
    """The checksum of a batch does not match its bytes, or the format of the batch is invalid."""

    default_code = ErrorCode.CORRUPT_MESSAGE


class OutOfOrderSequenceError(ApiError):
    """The sequence number of a batch does not follow the last sequence number that the broker has
    for this producer.
    """


class ProducerFencedError(ApiError):
    """Another producer uses the same transactional id, the transaction has timed out, or the
    brokers have forgotten the transactional id.
    """


class TransactionAbortableError(ApiError):
    """The transaction can't be committed, but it can be aborted and retried (KIP-1050)."""

    default_code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionAbortedError(ApiError):
    """The batch was not sent, because its transaction was aborted."""

    default_kind = Kind.TRANSACTION_ABORTED
    default_code = ErrorCode.TRANSACTION_ABORTABLE


class InvalidTxnStateError(ApiError):
    """The transaction is in a state that forbids the request."""


class UnsupportedVersionError(ApiError):
    """The client and the broker support no common version of the request."""

    default_code = ErrorCode.UNSUPPORTED_VERSION


class UnknownServerError(ApiError):
    """The broker returned an error without details, or an error code that this package does not
    know.
    """


class ErrorClass(Enum):
    """The producer's reaction to an error code of a broker (Java's ``Sender.completeBatch``)."""

    SUCCESS = "success"
    RETRIABLE = "retriable"
    REFRESH_METADATA = "retriable, metadata refreshed"
    FIND_COORDINATOR = "retriable, coordinator looked up again"
    SEQUENCE = "depends on other batches"
    FATAL = "fails the batch"


@dataclass(frozen=True, slots=True)
class CodeInfo:
    """A row of the table of error codes of brokers: the number, the producer's reaction, the class
    of the exception, the meaning and the hint.
    """

    code: int
    error_class: ErrorClass
    error_type: type[ApiError]
    meaning: str
    #: The advice for the code. If the client retries, this is the advice for an error that lasts.
    hint: str


#: Patterns of a secret in a wrong place: a private key in PEM, a login module (except in a hint,
#: password="..."), a connection string, a password in an address.
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|SharedAccessKey\s*=|(?:password|secret)\s*=\s*[\"'](?!\.\.\.\")"
    r"|://[^/@\s]*:[^@\s]*@",
    re.IGNORECASE,
)
_NOT_SHOWN = "[hidden: it looks like a secret; if it was one, replace it, others may have seen it]"


def safe_text(text: str, limit: int = 200) -> str:
    """Makes a text from outside of this package safe for a message.

    The result is one line:

    * Only the first ``limit`` characters are kept. If there are more, "..." follows.
    * A character that is not printable, such as a line break, becomes an escape.
    * If the text seems to contain a secret, the whole text is replaced.
    """
    if _SECRET.search(text[: 20 * limit]):
        return _NOT_SHOWN
    cut = text[:limit]
    printable = "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)
    return printable + ("..." if len(text) > limit else "")


def named(names: Sequence[object], most: int) -> str:
    """Joins the first ``most`` of ``names`` by commas. If there are more names, adds their number,
    such as ``+3 more``.
    """
    more = f", +{len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + more


_C = ErrorClass
_CREATE_TOPIC = (
    "create the topic first, or check its name. The principal needs the ACL DESCRIBE on the topic"
)
#: The identity that the broker sees; it does not report it to the client.
_PRINCIPAL = "the principal (the SASL user, or the client certificate's subject)"
_ACL_TOPIC = f"{_PRINCIPAL} needs the ACL WRITE on the topic, which includes DESCRIBE"
_ACL_TXN = f"{_PRINCIPAL} needs the ACL WRITE on the transactional id, which includes DESCRIBE"
_ACL_GROUP = f"{_PRINCIPAL} needs the ACL READ on the group, which includes DESCRIBE"
_COMMIT_LOG = (
    "create the topic of commitLogTopic yourself, with 16 partitions and cleanup.policy=compact, so"
    " that the sink does not have to create it"
)
_OTHER_GROUP = "set offsetsGroup to a consumer group without running consumers"
_IN_SYNC = (
    "start the brokers that are down, or wait until the replicas have caught up. kafka-topics.sh"
    " --describe --under-min-isr-partitions shows the affected partitions"
)
_REPORT = (
    "report this error, with the broker's name and version. The cause is a bug of"
    " spark-kafka-sink, or a broker that is not Apache Kafka"
)
_ACL_IDEMPOTENT = (
    f"{_PRINCIPAL} needs the ACL WRITE on at least one topic. With brokers before 2.8, the principal"
    " needs the ACL IDEMPOTENT_WRITE on the cluster instead. Without this right, set"
    " deliveryGuarantee=none, or enable.idempotence=false if you use this package's KafkaProducer"
    " without Spark"
)

_ROWS: tuple[tuple[ErrorCode, ErrorClass, type[ApiError], str, str], ...] = (
    (ErrorCode.UNKNOWN_SERVER_ERROR, _C.FATAL, UnknownServerError, "the broker failed for an unknown reason, or returned an unknown error code", "see the reason in the broker's server.log"),
    (ErrorCode.NONE, _C.SUCCESS, ApiError, "no error", ""),
    (ErrorCode.OFFSET_OUT_OF_RANGE, _C.FATAL, ApiError, "the offset is outside the partition's log", "set cleanup.policy=compact (not compact,delete) for the topic of commitLogTopic, because brokers have removed records of this topic while the sink read it"),
    (ErrorCode.CORRUPT_MESSAGE, _C.RETRIABLE, CorruptRecordError, "the record batch failed its checksum, or its format is wrong", "if the error lasts, a machine between the client and the broker changes bytes. Check proxies, and use TLS, which detects changed bytes"),
    (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _C.REFRESH_METADATA, InvalidMetadataError, "the broker does not host this topic partition", _CREATE_TOPIC),
    (ErrorCode.INVALID_FETCH_SIZE, _C.FATAL, ApiError, "the fetch size is invalid", _REPORT),
    (ErrorCode.LEADER_NOT_AVAILABLE, _C.REFRESH_METADATA, InvalidMetadataError, "the partition has no leader, because an election is in progress", "if the error lasts, start the brokers that hold the partition's replicas. kafka-topics.sh --describe shows these brokers"),
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, _C.REFRESH_METADATA, InvalidMetadataError, "the broker no longer leads this partition", "if the error lasts, see in the brokers' server.log why the partition's leader keeps changing"),
    (ErrorCode.REQUEST_TIMED_OUT, _C.RETRIABLE, KafkaTimeoutError, "the request timed out", "if the error lasts, see whether brokers are slow or down, or raise request.timeout.ms"),
    (ErrorCode.BROKER_NOT_AVAILABLE, _C.FATAL, ApiError, "the broker is not available", "start the brokers that are down, and run the write again"),
    (ErrorCode.REPLICA_NOT_AVAILABLE, _C.REFRESH_METADATA, InvalidMetadataError, "a replica of the partition is not available", "if the error lasts, start the brokers that hold the partition's replicas"),
    (ErrorCode.MESSAGE_TOO_LARGE, _C.FATAL, RecordTooLargeError, "the record batch is larger than the broker accepts", "raise the topic's max.message.bytes, or write smaller rows"),
    (ErrorCode.STALE_CONTROLLER_EPOCH, _C.FATAL, ApiError, "the cluster has a new controller", "wait until kafka-metadata-quorum.sh describe --status shows a leader, then run the write again"),
    (ErrorCode.OFFSET_METADATA_TOO_LARGE, _C.FATAL, ApiError, "the metadata of a committed offset are too large", "raise the brokers' offset.metadata.max.bytes"),
    (ErrorCode.NETWORK_EXCEPTION, _C.REFRESH_METADATA, DisconnectError, "the broker disconnected before it responded", "if the error lasts, see the broker's server.log. If a firewall or a load balancer closes idle connections, lower connections.max.idle.ms"),
    (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, _C.RETRIABLE, CoordinatorError, "the coordinator is still loading its state", "if the error lasts for minutes, see in the broker's server.log how much of its topic the coordinator has read (__transaction_state for transactions, __consumer_offsets for consumer groups)"),
    (ErrorCode.COORDINATOR_NOT_AVAILABLE, _C.FIND_COORDINATOR, CoordinatorError, "the coordinator of the transactional id or consumer group is not available", "if the error lasts, start the brokers that hold the topic __transaction_state, or, for a consumer group, __consumer_offsets. If the cluster has fewer brokers than transaction.state.log.replication.factor, lower this setting"),
    (ErrorCode.NOT_COORDINATOR, _C.FIND_COORDINATOR, CoordinatorError, "the broker is not the coordinator of the transactional id or consumer group", "if the error lasts, wait for the end of a rolling restart, or see in the brokers' server.log why the leaders of the topic __transaction_state keep changing"),
    (ErrorCode.INVALID_TOPIC_EXCEPTION, _C.FATAL, InvalidTopicError, "the topic's name is not valid, or the topic is internal", "use a name of at most 249 characters: letters, digits, '.', '_' and '-'. Clients can't write to an internal topic"),
    (ErrorCode.RECORD_LIST_TOO_LARGE, _C.FATAL, RecordTooLargeError, "the record batch is larger than the topic's segment.bytes", "lower batch.size, or raise the topic's segment.bytes"),
    (ErrorCode.NOT_ENOUGH_REPLICAS, _C.RETRIABLE, RetriableError, "fewer replicas are in sync than min.insync.replicas", _IN_SYNC),
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, _C.RETRIABLE, RetriableError, "the record batch was written to fewer replicas than min.insync.replicas", _IN_SYNC),
    (ErrorCode.INVALID_REQUIRED_ACKS, _C.FATAL, ApiError, "the option acks is not -1, 0 or 1", "set acks=all (which is -1), acks=1 or acks=0"),
    (ErrorCode.ILLEGAL_GENERATION, _C.FATAL, ApiError, "the consumer group is in another generation than the request", _OTHER_GROUP),
    (ErrorCode.INVALID_GROUP_ID, _C.FATAL, ApiError, "the id of the consumer group is not valid", "set offsetsGroup to a name that is not empty"),
    (ErrorCode.UNKNOWN_MEMBER_ID, _C.FATAL, ApiError, "the consumer group has no such member", _OTHER_GROUP),
    (ErrorCode.INVALID_COMMIT_OFFSET_SIZE, _C.FATAL, ApiError, "the offsets of one commit are larger than the topic __consumer_offsets accepts", "raise max.message.bytes of the topic __consumer_offsets, or read fewer partitions in one query. With offsetsGroup, a commit has the offsets of all partitions that the query reads"),
    (ErrorCode.TOPIC_AUTHORIZATION_FAILED, _C.FATAL, AuthorizationError, "the principal may not see the topic, or may not write to it", _ACL_TOPIC),
    (ErrorCode.GROUP_AUTHORIZATION_FAILED, _C.FATAL, AuthorizationError, "the principal may not use the consumer group", _ACL_GROUP),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, _C.FATAL, AuthorizationError, "the principal may not write with idempotence", _ACL_IDEMPOTENT),
    (ErrorCode.INVALID_TIMESTAMP, _C.FATAL, InvalidRecordError, "a record's timestamp is outside the range that the topic accepts", "check the unit of the timestamp: a bigint timestamp column holds milliseconds. If the unit is right, change the topic's message.timestamp.before.max.ms or message.timestamp.after.max.ms"),
    (ErrorCode.UNSUPPORTED_SASL_MECHANISM, _C.FATAL, AuthenticationError, "the broker does not offer this SASL mechanism", "set sasl.mechanism to a mechanism that the listener offers, or add your mechanism to the brokers' sasl.enabled.mechanisms"),
    (ErrorCode.ILLEGAL_SASL_STATE, _C.FATAL, AuthenticationError, "the broker does not expect this request at this point of a SASL login", "the listener of this address has no SASL. Connect to a listener with SASL, or connect without SASL: set security.protocol=SSL for a listener with TLS, and otherwise PLAINTEXT"),
    (ErrorCode.UNSUPPORTED_VERSION, _C.FATAL, UnsupportedVersionError, "the broker does not support this version of the request", "use brokers of Kafka 2.1 or newer"),
    (ErrorCode.TOPIC_ALREADY_EXISTS, _C.FATAL, ApiError, "the topic exists already", "run the write again. Another process has created the topic at the same time"),
    (ErrorCode.INVALID_PARTITIONS, _C.FATAL, ApiError, "the number of partitions of a new topic is below 1", _COMMIT_LOG),
    (ErrorCode.INVALID_REPLICATION_FACTOR, _C.FATAL, ApiError, "the replication factor of a new topic is below 1, or above the number of brokers", f"start more brokers, or lower the cluster's default.replication.factor. Otherwise {_COMMIT_LOG}"),
    (ErrorCode.INVALID_REPLICA_ASSIGNMENT, _C.FATAL, ApiError, "the replica assignment of a new topic is not valid", _COMMIT_LOG),
    (ErrorCode.INVALID_CONFIG, _C.FATAL, ApiError, "the cluster refuses a setting of a new topic", f"see in the message which setting is refused. If the new topic is the topic of commitLogTopic, {_COMMIT_LOG}"),
    (ErrorCode.NOT_CONTROLLER, _C.RETRIABLE, RetriableError, "the broker is not the controller", "if the error lasts, the cluster has no controller. See kafka-metadata-quorum.sh describe --status"),
    (ErrorCode.INVALID_REQUEST, _C.FATAL, ApiError, "the broker can't read the request", _REPORT),
    (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, _C.FATAL, ApiError, "the topic's message format is too old for idempotence or transactions", "set the topic's message.format.version to 0.11.0 or newer"),
    (ErrorCode.POLICY_VIOLATION, _C.FATAL, ApiError, "the request breaks a policy of the cluster", "ask the operator of the cluster which requests the policy allows (create.topic.policy.class.name). If the policy does not allow the sink to create the topic of commitLogTopic, let the operator create this topic, with 16 partitions and cleanup.policy=compact"),
    (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, _C.SEQUENCE, OutOfOrderSequenceError, "the sequence number of the record batch does not follow the last one that the broker has of this producer", "if the task fails, Spark runs it again, and the new attempt writes all rows with a new producer. See in the brokers' server.log whether an unclean election has lost data"),
    (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, _C.SUCCESS, ApiError, "the broker already has this record batch", "do nothing. The producer has sent the record batch twice, and the broker has kept only one copy. The write report counts such record batches in the field duplicates"),
    (ErrorCode.INVALID_PRODUCER_EPOCH, _C.FATAL, ProducerFencedError, "the producer's epoch is older than the epoch that the broker has", "if two queries or jobs use this transactional id, stop one of them. If the transaction timed out, raise transaction.timeout.ms, or write fewer rows at once"),
    (ErrorCode.INVALID_TXN_STATE, _C.FATAL, InvalidTxnStateError, "the transaction is in a state that does not allow the request", "run the write again. The transaction timed out, or another client has ended it ('kprod txn describe' shows its state)"),
    (ErrorCode.INVALID_PRODUCER_ID_MAPPING, _C.FATAL, ProducerFencedError, "the producer id does not belong to the transactional id", "run the write again. If a transactional id is not used for longer than transactional.id.expiration.ms, brokers forget it"),
    (ErrorCode.INVALID_TRANSACTION_TIMEOUT, _C.FATAL, ApiError, "the option transaction.timeout.ms is above the broker's transaction.max.timeout.ms", "lower transaction.timeout.ms, or raise the brokers' transaction.max.timeout.ms (default: 15 minutes)"),
    (ErrorCode.CONCURRENT_TRANSACTIONS, _C.RETRIABLE, RetriableError, "the coordinator has not yet completed an earlier change of a transaction with this transactional id", "if the error lasts for seconds, start the brokers that lead the partitions of the previous transaction. They have not yet written the end of this transaction"),
    (ErrorCode.TRANSACTION_COORDINATOR_FENCED, _C.FATAL, ApiError, "another broker has become the transaction coordinator", "run the write again. It uses the new coordinator"),
    (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _C.FATAL, AuthorizationError, "the principal may not use the transactional id", _ACL_TXN),
    (ErrorCode.SECURITY_DISABLED, _C.FATAL, ApiError, "security is switched off on the broker", "set authorizer.class.name on the brokers, or work without ACLs"),
    (ErrorCode.OPERATION_NOT_ATTEMPTED, _C.FATAL, ApiError, "the broker did not try this part of the request, because another part failed", "see the error of the part that failed (another partition of the same request)"),
    (ErrorCode.KAFKA_STORAGE_ERROR, _C.REFRESH_METADATA, InvalidMetadataError, "a disk of the broker failed", "see the broker's server.log, and replace the disk"),
    (ErrorCode.SASL_AUTHENTICATION_FAILED, _C.FATAL, AuthenticationError, "SASL authentication failed", "check the user and password, or the token. Check also that the brokers have this user for this sasl.mechanism. 'kprod check' tries the login without a job"),
    (ErrorCode.UNKNOWN_PRODUCER_ID, _C.SEQUENCE, OutOfOrderSequenceError, "the broker has forgotten this producer id", "if the task fails, Spark runs it again, and the new attempt writes all rows with a new producer. See whether the topic's retention.ms is too short: brokers may have removed all records of the old producer"),
    (ErrorCode.GROUP_ID_NOT_FOUND, _C.FATAL, ApiError, "the group does not exist, or is not a consumer group", "set offsetsGroup to a consumer group. A share group can't store the offsets that the sink commits"),
    (ErrorCode.LISTENER_NOT_FOUND, _C.REFRESH_METADATA, InvalidMetadataError, "the client is connected to a broker's listener, and the partition's leader has no listener with this name", "if the error lasts, give every broker the listener that bootstrap.servers uses"),
    (ErrorCode.TOPIC_DELETION_DISABLED, _C.FATAL, ApiError, "the brokers do not allow clients to delete topics", "set delete.topic.enable=true on the brokers, or let the operator of the cluster delete the topic"),
    (ErrorCode.FENCED_LEADER_EPOCH, _C.REFRESH_METADATA, InvalidMetadataError, "the leader epoch of the request is older than the broker's", "if the error lasts, check that all addresses of bootstrap.servers belong to one cluster"),
    (ErrorCode.UNKNOWN_LEADER_EPOCH, _C.RETRIABLE, RetriableError, "the leader epoch of the request is newer than the broker's", "if the error lasts, see in the broker's server.log why its metadata are out of date"),
    (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, _C.FATAL, ApiError, "the broker does not support this compression", "set compression.type to lz4, snappy or gzip. For zstd, use brokers of Kafka 2.1 or newer"),
    (ErrorCode.INVALID_RECORD, _C.FATAL, InvalidRecordError, "the broker rejected a record", "give each row a key. A compacted topic accepts no record without a key"),
    (ErrorCode.THROTTLING_QUOTA_EXCEEDED, _C.RETRIABLE, RetriableError, "the user's quota for creating and deleting topics is used up", f"raise the user's quota controller_mutation_rate. Otherwise {_COMMIT_LOG}"),
    (ErrorCode.PRODUCER_FENCED, _C.FATAL, ProducerFencedError, "a newer producer with this transactional id took over", "if two queries or jobs use this transactional id, stop one of them. Give each query its own transactionalIdPrefix, and each job its own txnAppId"),
    (ErrorCode.UNKNOWN_TOPIC_ID, _C.REFRESH_METADATA, InvalidMetadataError, "the broker does not host a topic with this topic id", "if the error lasts, run the write again. The topic may have been deleted and created again"),
    (ErrorCode.INCONSISTENT_TOPIC_ID, _C.REFRESH_METADATA, InvalidMetadataError, "the topic id of the request is not the topic id in the broker's log", "if the error lasts, the topic was deleted and created again. Run the write again when all brokers have the new topic"),
    (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, _C.FATAL, ApiError, "the brokers do not know the transactional id", "check the spelling of the id: 'kprod txn list' shows the known ids. If an id is not used for longer than transactional.id.expiration.ms, brokers forget it"),
    (ErrorCode.TRANSACTION_ABORTABLE, _C.FATAL, TransactionAbortableError, "the transaction can't be committed, and must be aborted", "run the write again, in a new transaction. If a task has failed, Spark does this itself"),
    (ErrorCode.REBOOTSTRAP_REQUIRED, _C.FATAL, ApiError, "the client must connect again through its bootstrap servers", "check that all addresses of bootstrap.servers belong to the cluster, then run the write again"),
)  # fmt: skip

_RETRIABLE = frozenset({_C.RETRIABLE, _C.REFRESH_METADATA, _C.FIND_COORDINATOR})

#: Topic errors that retries do not resolve.
FATAL_TOPIC_ERRORS = frozenset(
    {ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
#: Brokers' answers for a topic that can't be written to.
TOPIC_UNAVAILABLE = FATAL_TOPIC_ERRORS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

#: Every member of ErrorCode with its row.
CODES: dict[ErrorCode, CodeInfo] = {
    code: CodeInfo(code.value, cls, error_type, meaning, hint)
    for code, cls, error_type, meaning, hint in _ROWS
}

# Users import exceptions from there, and tracebacks, also Spark's, name that module.
for _defined in [*globals().values()]:
    if isinstance(_defined, type) and issubclass(_defined, KafkaError):
        _defined.__module__ = "spark_kafka_sink.errors"
