"""Requests and responses of Kafka, in fewer words than their classes take."""

from __future__ import annotations

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.messages.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.transaction_versions import (
    ending_versions,
    init_producer_id_versions,
)

API_VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="0")


def init_request(
    transactional_id: str | None,
    timeout_ms: int,
    producer_id: int = -1,
    epoch: int = -1,
    *,
    enable_2pc: bool = False,
    keep_prepared_txn: bool = False,
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        enable_2pc=enable_2pc,
        keep_prepared_txn=keep_prepared_txn,
        versions=init_producer_id_versions(two_phase_commit=enable_2pc or keep_prepared_txn),
    )


def init_response(
    code: ErrorCode, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdResponse:
    return InitProducerIdResponse(0, code, producer_id, epoch, -1, -1)


def end_request(
    transactional_id: str, producer_id: int, epoch: int, committed: bool, transaction_version: int
) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=committed,
        versions=ending_versions(transaction_version),
    )


def end_response(code: ErrorCode, producer_id: int = -1, epoch: int = -1) -> EndTxnResponse:
    return EndTxnResponse(0, code, producer_id, epoch)
