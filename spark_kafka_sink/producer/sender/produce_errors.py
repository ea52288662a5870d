"""The words for batches that failed: what, where, how often tried, how old, and why.

Owns: turning an answer, a lost request, a time-out or a bug into the exception that a batch ends
with. Never: a decision to fail (``sender.py``), a row's content.
"""

from __future__ import annotations

from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import (
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

_LIMIT = "delivery.timeout.ms limits the time from batch creation to acknowledgement"


def refusal_error(
    batch: ProducerBatch,
    answer: PartitionProduceResponse,
    response: ClientResponse,
    broker: str,
    reason: str | None,
) -> ApiError:
    """The error of a batch that ``broker`` answered with ``answer``.

    ``reason`` says why that is final, when the code alone does not. A code of NONE means that the
    acknowledgement itself is what can't be (the log has lost records).
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
    told = answer.error_message
    if answer.record_errors:
        # The broker's message for the whole batch says the same of more records, in more words
        # than are shown.
        first = answer.record_errors[0]
        others = len(answer.record_errors) - 1
        told = (
            f"record {first.batch_index} of the batch{f' (and {others} more)' if others else ''}: "
            f"{first.message or told or 'refused'}"
        )
    if answer.error is ErrorCode.MESSAGE_TOO_LARGE:
        # Only a batch of one record fails with it: larger ones are split.
        told = f"{told or answer.error.info.meaning} (it has {batch.size_in_bytes} bytes)"
    if reason is not None:
        told = f"{told or answer.error.info.meaning}; {reason}"
    return answer.error.error(where, told)


def delivery_timeout_error(
    batch: ProducerBatch, now: int, story: str, hint: str | None = None
) -> KafkaTimeoutError:
    """delivery.timeout.ms is over; ``story`` tells how far the batch came.

    ``hint`` is what the last answer says must be done.
    """
    return KafkaTimeoutError(
        f"Expiring {batch.record_count} record(s) for {batch.tp}: {now - batch.created_ms} ms "
        f"has passed since batch creation, {batch.attempts} retries were made; {story}",
        hint=f"{hint}; {_LIMIT}" if hint else _LIMIT,
        code=ErrorCode.REQUEST_TIMED_OUT,
        kind=Kind.EXPIRED,
    )


def code_of_lost_request(response: ClientResponse) -> tuple[ErrorCode, str]:
    """What a request that brought no answer means for its batches, and the words for it."""
    error = response.error
    if isinstance(error, RemoteProtocolError):
        # What it meant is unknown, like an answer that never came: the same bytes go again.
        return ErrorCode.NETWORK_EXCEPTION, error.message
    if error is not None:
        return error.code, error.message
    if response.timed_out:
        return ErrorCode.REQUEST_TIMED_OUT, "no answer within request.timeout.ms"
    return ErrorCode.NETWORK_EXCEPTION, "the broker disconnected before it answered"


def unexpected_error(exception: BaseException) -> KafkaError:
    """What batches and waiters get when the sender's loop itself broke."""
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
