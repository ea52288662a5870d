"""A hint of a producer's error works when it is followed."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import (
    ConfigError,
    DataError,
    RecordTooLargeError,
    SerializationError,
)
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.producer.send.serialization import serializer
from spark_kafka_sink.records.partitioning.partitioners import partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.producer.answered_producers import Producers, rows_of, to0

LARGE = b"x" * 2000


@pytest.mark.parametrize("option", ["max_request_size", "buffer_memory"])
def test_a_limit_that_is_raised_lets_the_record_go(producers: Producers, option: str):
    producer, _ = producers(**{option: 1000})
    with pytest.raises(RecordTooLargeError) as raised:
        producer.send(to0(LARGE)).result()
    assert f"raise {option.replace('_', '.')}" in str(raised.value.hint)
    producer, _ = producers(**{option: 3000})
    producer.send(to0(LARGE)).result(60)


@pytest.mark.parametrize("option", ["max_request_size", "buffer_memory"])
def test_a_limit_that_is_raised_lets_the_columns_go(producers: Producers, option: str):
    producer, _ = producers(**{option: 1000, "batch_size": 500})
    with pytest.raises(RecordTooLargeError) as raised:
        producer.send_columns(rows_of([LARGE], 0))
    assert f"raise kafka.{option.replace('_', '.')}" in str(raised.value.hint)
    producer, _ = producers(**{option: 3000, "batch_size": 500})
    producer.send_columns(rows_of([LARGE], 0))
    assert producer.finish_attempt().rows == 1


def test_an_int_makes_a_partition():
    with pytest.raises(DataError) as raised:
        ProducerRecord("t", b"v", partition=1.0)  # type: ignore[arg-type]  # that is the error
    assert raised.value.hint == "int(partition) makes one"
    assert ProducerRecord("t", b"v", partition=int(1.0)).partition == 1


def test_a_file_s_name_is_given_back_as_bytes(producers: Producers):
    name = b"\xff.csv".decode("utf-8", "surrogateescape")
    producer, _ = producers(value_serializer="StringSerializer")
    with pytest.raises(SerializationError) as raised:
        producer.send(ProducerRecord("test", name, partition=0)).result(60)
    assert 'encode("utf-8", "surrogateescape")' in str(raised.value.hint)
    producer, _ = producers()
    its_bytes = name.encode("utf-8", "surrogateescape")
    producer.send(ProducerRecord("test", its_bytes, partition=0)).result(60)


def test_a_serializer_by_its_import_path_is_made():
    with pytest.raises(ConfigError) as raised:
        serializer("Text", "value.serializer")
    assert raised.value.hint == "or give an import path, package.module:Name"
    path = "spark_kafka_sink.producer.send.serialization:StringSerializer"
    assert serializer(path, "value.serializer").serialize("t", "v", []) == b"v"


def test_a_key_of_eight_bytes_has_an_iceberg_bucket():
    def assign(name: str, key: bytes) -> None:
        columns = RecordColumns(1, topic="t", key=pa.array([key], pa.binary()))
        partitioner(name).assign(columns, {"t": TopicView(7, (1,), 10_000)}, lambda tp: None)

    with pytest.raises(DataError) as raised:
        assign("iceberg_bucket_long", b"7")
    assert "unhex(lpad(hex(column), 16, '0')) makes one; iceberg_bucket" in str(raised.value.hint)
    for number in (7, -7):
        in_hex = f"{number % 2**64:X}"  # as Spark's hex
        assign("iceberg_bucket_long", bytes.fromhex(in_hex.rjust(16, "0")))
    assign("iceberg_bucket", b"7")
