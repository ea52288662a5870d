"""Creates the errors of failed batches. Each error names the partition, the broker, the number of
attempts, the age of the batch, and the cause.

A batch can fail after an error response, a lost request, a timeout, or an unexpected exception.
``sender.py`` decides that a batch fails. An error never has the content of a row.
"""

from __future__ import annotations

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    OutOfOrderSequenceError,
    RemoteProtocolError,
    safe_text,
)
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.protocol.produce import PartitionProduceResponse

_LIMIT = "kafka.delivery.timeout.ms limits the time from batch creation to acknowledgement"


def refusal_error(
    batch: ProducerBatch,
    answer: PartitionProduceResponse,
    response: ClientResponse,
    broker: str,
    reason: str | None,
) -> ApiError:
    """The error of ``batch`` after the broker ``broker`` has returned ``answer`` for it.

    ``reason`` explains why the batch is not sent again. It is None if the error code explains this.
    The error code may also be NONE: the broker has acknowledged the batch, but the returned offset
    shows that earlier records are missing in the log.
    """
    where = (
        f"{batch.tp} on broker {broker}, attempt {batch.attempts + 1}, "
        f"{response.received_ms - batch.created_ms} ms after batch creation, "
        f"{batch.record_count} record(s)"
    )
    if answer.error is ErrorCode.NONE:
        code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return OutOfOrderSequenceError(f"{where}: {reason}", code=code)
    if isinstance(response.error, ApiError):
        cause = response.error
        return type(cause)(
            f"{where}: {cause.message}", hint=cause.hint, code=cause.code, kind=cause.kind
        )
    message = answer.error_message
    if answer.record_errors:
        # The broker's message for the whole batch repeats this for more records, in more words
        # than are shown.
        first = answer.record_errors[0]
        others = len(answer.record_errors) - 1
        message = (
            f"record {first.batch_index} of the batch{f' (and {others} more)' if others else ''}: "
            f"{first.message or message or 'rejected'}"
        )
    if answer.error is ErrorCode.MESSAGE_TOO_LARGE:
        # Only a batch of one record fails with this code: larger ones are split.
        message = f"{message or answer.error.info.meaning} (it has {batch.size_in_bytes} bytes)"
    if answer.error is ErrorCode.REQUEST_TIMED_OUT and response.body is not None:
        # The broker that says so is alive: it waited for the replicas of the partition.
        message = message or "its replicas did not confirm it in time: a broker is slow or down"
    if reason is not None:
        message = f"{message or answer.error.info.meaning}; {reason}"
    return answer.error.error(where, message)


def delivery_timeout_error(
    batch: ProducerBatch, now: int, status: str, hint: str | None = None
) -> KafkaTimeoutError:
    """The error of ``batch`` after delivery.timeout.ms.

    ``status`` describes the last known state of the batch, such as its last response. ``hint`` is
    the hint for the error code of the last response.
    """
    return KafkaTimeoutError(
        f"Expiring {batch.record_count} record(s) for {batch.tp}: {now - batch.created_ms} ms "
        f"has passed since batch creation, {batch.attempts} retries were made; {status}",
        hint=f"{hint}; {_LIMIT}" if hint else _LIMIT,
        kind=Kind.EXPIRED,
    )


def doubt_error(batch: ProducerBatch, cause: ApiError) -> ApiError:
    """The error of ``batch``, which fails because another batch of its partition has failed with
    ``cause``.

    It is unknown whether ``batch`` is or will be in the log. So the error does not have the code of
    ``cause``, which would mean that ``batch`` is not in the log.
    """
    where = f"{batch.tp}, attempt {batch.attempts + 1}, {batch.record_count} record(s)"
    error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.error(
        where,
        "it is not known whether they are, or will be, in the log: another batch of the partition "
        f"failed with {cause.code.name}",
    )
    error.__cause__ = cause
    return error


def code_of_lost_request(response: ClientResponse) -> tuple[ErrorCode, str]:
    """The error code and the message for the batches of a request that got no valid response."""
    error = response.error
    if isinstance(error, RemoteProtocolError):
        # As for a response that never arrived, the outcome is unknown: the same bytes are resent.
        return ErrorCode.NETWORK_EXCEPTION, error.message
    if error is not None:
        return error.code, error.message
    if response.timed_out:
        return ErrorCode.REQUEST_TIMED_OUT, "no response within request.timeout.ms"
    return ErrorCode.NETWORK_EXCEPTION, "the broker disconnected before it responded"


def unexpected_error(exception: BaseException) -> KafkaError:
    """The error with which all batches and waiting calls fail, after the network thread has stopped
    because of ``exception``.
    """
    if isinstance(exception, KafkaError):
        return exception
    what = safe_text(f"{type(exception).__name__}: {exception}")
    error = KafkaError(
        f"the producer's network thread stopped on an unexpected error: {what}",
        hint="this is a bug of spark_kafka_sink; nothing was sent after it",
        kind=Kind.ILLEGAL_STATE,
    )
    error.__cause__ = exception
    return error
