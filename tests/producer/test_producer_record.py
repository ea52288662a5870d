"""ProducerRecord: its headers are made when they are read, which can't be seen."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from spark_kafka_sink.base.errors import DataError, IllegalStateError
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.producer_record import Headers, ProducerRecord, RecordMetadata
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.single_record import size_upper_bound
from tests.fakes.accumulator_world import cluster_of
from tests.fakes.clock import FakeClock
from tests.producer.answered_producers import without_thread

CLUSTER = cluster_of([1])
TP = TopicPartition("test", 0)
GIVEN = [("h", b"1"), ("h", None)]


def test_a_record_without_headers_always_has_the_same_empty_ones():
    record = ProducerRecord("test", b"v")
    assert record.headers == Headers()
    assert record.headers is record.headers
    assert isinstance(record.headers, Headers)
    record.headers.add("late", b"1")
    assert list(record.headers) == [("late", b"1")]
    assert ProducerRecord("test").headers == Headers(), "no record has another's"


@pytest.mark.parametrize(
    "headers", [None, (), GIVEN, Headers(GIVEN)], ids=["null", "none", "list", "Headers"]
)
def test_a_copy_of_a_record_has_its_headers(headers: object):
    record = ProducerRecord("test", b"v", b"k", 1, 2, headers)  # type: ignore[arg-type]
    for other in (
        dataclasses.replace(record),
        copy.copy(record),
        copy.deepcopy(record),
        pickle.loads(pickle.dumps(record)),
    ):
        assert other == record
        assert list(other.headers) == list(headers or ())  # type: ignore[call-overload]


def test_a_record_that_is_sent_changes_no_headers_of_others():
    """As Java's constructor does, a record copies the headers that it is given: what a serializer
    or an interceptor adds to one record is no other's, and the next one can still get some.
    """
    headers = Headers(GIVEN)
    producer = without_thread(CLUSTER)
    first, second = (ProducerRecord("test", b"v", headers=headers) for _ in range(2))
    assert isinstance(first.headers, Headers)
    first.headers.add("of the first", b"1")
    producer.send(first)
    assert second.headers == headers == Headers(GIVEN)
    for other in (second.headers, headers, dataclasses.replace(first, value=b"w").headers):
        assert isinstance(other, Headers)
        assert not other.read_only
    producer.close(0)


@pytest.mark.parametrize("looked_at", [True, False])
def test_a_record_sent_without_headers_can_not_get_any(looked_at: bool):
    producer = without_thread(CLUSTER)
    record = ProducerRecord("test", b"v")
    if looked_at:
        assert not record.headers.read_only
    producer.send(record)
    assert record.headers.read_only
    with pytest.raises(IllegalStateError, match="has been sent"):
        record.headers.add("late", b"1")
    producer.send(record)  # again, as it is
    assert not ProducerRecord("test").headers.read_only
    producer.close(0)


@pytest.mark.parametrize("headers", [(), GIVEN], ids=["none", "some"])
@pytest.mark.parametrize("option", ["max_request_size", "buffer_memory"])
def test_a_record_may_be_as_large_as_its_limit(option: str, headers: object):
    """KafkaProducer.ensureValidRecordSize: Java's upper bound of its size is what counts."""
    section = b"\4" + b"\2h\2" + b"1" + b"\2h\1" if headers else b"\0"
    limit = 2000
    value = b"x" * (limit - size_upper_bound(b"key", b"x" * 1000, section) + 1000)
    producer = without_thread(CLUSTER, **{option: limit})
    fits = ProducerRecord("test", value, b"key", headers=headers)  # type: ignore[arg-type]
    assert not producer.send(fits).done()
    above = ProducerRecord("test", value + b"x", b"key", headers=headers)  # type: ignore[arg-type]
    assert "The message is 2001 bytes" in str(producer.send(above).exception(0))
    producer.close(0)


def test_a_topic_is_in_use_as_long_as_its_records_open_batches():
    """ProducerMetadata.add: else metadata.max.idle.ms would drop it."""
    producer = without_thread(CLUSTER, metadata_max_idle_ms=5000, linger_ms=0)
    clock = producer._clock
    assert isinstance(clock, FakeClock)
    metadata: Metadata = producer._metadata
    for _ in range(20):
        clock.advance(1500)
        producer.send(ProducerRecord("test", b"v"))
        (batch,) = producer._accumulator.incomplete.all()
        producer._accumulator.abort_undrained_batches(DataError("it has left"))
        assert batch.is_done
    assert metadata._topics["test"] > clock.now_ms()
    producer.close(0)


def test_a_subclass_of_a_record_is_refused_by_its_name():
    with pytest.raises(TypeError, match="ProducerRecord can't be subclassed"):
        type("Order", (ProducerRecord,), {})


def test_headers_show_their_keys_and_never_their_values():
    headers = Headers([("trace", b"a secret"), ("h", None)])
    assert repr(headers) == "Headers(['trace', 'h'])"
    assert len(headers) == 2


def test_all_headers_of_a_key_are_removed_and_no_other():
    headers = Headers([("h", b"1"), ("other", b"2"), ("h", None)])
    headers.remove("h")
    headers.remove("not there")
    assert list(headers) == [("other", b"2")]
    assert headers.last("h") is None


def test_metadata_tells_what_a_broker_did_not_return():
    """With acks=0 there is no offset, and with the producer's own time no time of the broker."""
    failed = RecordMetadata.empty(TP)
    assert (failed.topic, failed.partition) == TP
    assert not failed.has_offset
    assert not failed.has_timestamp
    first = RecordMetadata("test", 0, offset=0, timestamp=0)
    assert first.has_offset
    assert first.has_timestamp
