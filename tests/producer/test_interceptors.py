"""Interceptors: what they see, what they may change, and that a broken one does no harm."""

from __future__ import annotations

import gc
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import (
    ConfigError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    RecordTooLargeError,
    SerializationError,
)
from spark_kafka_sink.producer.interceptors import Interceptors, ProducerInterceptor
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.lifecycle import NetworkThread
from spark_kafka_sink.producer.producer_record import (
    NO_HEADERS,
    Headers,
    ProducerRecord,
    RecordMetadata,
)
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.accumulator_world import cluster_of
from tests.fakes.answering_client import AnsweringClient
from tests.producer.answered_producers import TP0, Producers, refuse

CLUSTER = cluster_of([1, 2])


class Seeing(ProducerInterceptor):
    """Remembers everything; the last one that was made is ``Seeing.last``."""

    last: Seeing

    def __init__(self) -> None:
        Seeing.last = self
        self.records: list[ProducerRecord] = []
        self.rows = 0
        self.acknowledged: list[tuple[RecordMetadata, KafkaError | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.records.append(record)
        return record

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        self.rows += columns.rows
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.acknowledged.append((metadata, error))

    def close(self) -> None:
        self.closed += 1


class Upper(ProducerInterceptor):
    """Changes values."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        assert isinstance(record.value, bytes)
        return ProducerRecord(record.topic, record.value.upper(), partition=record.partition)

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        values = [v.as_py().upper() for v in columns.value]
        return RecordColumns(
            rows=columns.rows,
            topic=columns.topic,
            partition=columns.partition,
            value=pa.array(values, pa.binary()),
        )


class Broken(ProducerInterceptor):
    """Raises in every method, with a payload in its text."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError(record.value)

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        raise ValueError(columns.value[0].as_py())

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        raise ValueError("a secret")

    def close(self) -> None:
        raise ValueError("a secret")


class Dropping:
    """Not derived from anything; drops a row, which it must not."""

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        return columns.slice(0, columns.rows - 1)


class Useless:
    pass


def path(cls: type) -> str:
    return f"{__name__}:{cls.__name__}"


#: Interceptors to a producer with them, and its client.
Intercepted = Callable[..., tuple[KafkaProducer, AnsweringClient]]


@pytest.fixture
def producers(producers: Producers) -> Intercepted:
    """A producer of these interceptors."""
    producers.defaults |= {"linger_ms": 60_000, "max_block_ms": 50, "enable_idempotence": "false"}
    return lambda *interceptors: producers(CLUSTER, interceptor_classes=list(interceptors))


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"value": list(values), "partition": [0] * len(values)})


def test_an_interceptor_sees_records_columns_and_acks(producers: Intercepted):
    seeing = Seeing()
    producer, _ = producers(seeing)
    record = ProducerRecord("test", b"one", partition=0, timestamp=7)
    producer.send(record)
    producer.flush()
    producer.send_batch(rows("a", "b", "c"), "test")
    producer.flush()
    assert seeing.records == [record]
    assert seeing.rows == 3
    (one, _), (batch, error) = seeing.acknowledged
    assert one == RecordMetadata("test", 0, 0, 7, -1, 3)
    assert (batch.offset, batch.record_count, error) == (1, 3, None)
    producer.close(1000)
    producer.close(1000)
    assert seeing.closed == 1


def test_a_mixed_batch_reports_each_kind_once(producers: Intercepted):
    seeing = Seeing()
    producer, _ = producers(seeing)
    producer.send(ProducerRecord("test", b"one", partition=0))
    producer.send_batch(rows("a", "b"), "test")
    producer.flush()
    assert [m.record_count for m, _ in seeing.acknowledged] == [1, 2]


def test_interceptors_change_what_is_sent_one_after_the_other(producers: Intercepted):
    seeing = Seeing()
    producer, client = producers(Upper, seeing)
    producer.send(ProducerRecord("test", b"one", partition=0))
    producer.send_batch(rows("two"), "test")
    producer.flush()
    assert client.values(TP0) == [b"ONE", b"TWO"]
    assert seeing.records[0].value == b"ONE"


def test_one_that_raises_is_logged_and_the_others_go_on(
    producers: Intercepted, caplog: pytest.LogCaptureFixture
):
    seeing = Seeing()
    producer, client = producers(Broken, Upper, Dropping, seeing)
    producer.send(ProducerRecord("test", b"a secret", partition=0))
    producer.send_batch(rows("a secret"), "test")
    producer.flush()
    producer.close(1000)
    assert client.values(TP0) == [b"A SECRET", b"A SECRET"]
    assert (len(seeing.records), seeing.rows, len(seeing.acknowledged)) == (1, 1, 2)
    assert seeing.closed == 1
    assert "ValueError in on_send (test_interceptors.py:" in caplog.text
    assert "onAcknowledgement" in caplog.text
    assert "Failed to close producer interceptor" in caplog.text
    assert "secret" not in caplog.text.lower()


@pytest.mark.parametrize("returned", [None, b"v"])
def test_one_that_returns_no_record_is_skipped_with_a_warning(
    producers: Intercepted, caplog: pytest.LogCaptureFixture, returned: object
):
    class Forgets(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return returned  # type: ignore[return-value]

    producer, client = producers(Forgets, Upper)
    producer.send(ProducerRecord("test", b"kept", partition=0))
    producer.flush()
    assert client.values(TP0) == [b"KEPT"]
    assert "TypeError in on_send" in caplog.text


def test_a_callback_runs_after_the_interceptors(producers: Intercepted):
    """Also if it raises, and if the record failed."""
    order: list[str] = []

    class Notes(ProducerInterceptor):
        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            order.append("interceptor")

    def callback(metadata: RecordMetadata, error: KafkaError | None) -> None:
        order.append("written" if error is None else "failed")
        raise ValueError("of a user")

    producer, client = producers(Notes)
    written = producer.send(ProducerRecord("test", b"v", partition=0), callback)
    producer.flush()
    client.answer = refuse(ErrorCode.MESSAGE_TOO_LARGE)
    failed = producer.send(ProducerRecord("test", b"v", partition=0), callback)
    producer.flush()
    assert order == ["interceptor", "written", "interceptor", "failed"]
    assert written.result(0).offset == 0
    assert isinstance(failed.exception(0), RecordTooLargeError)


def test_sys_exit_in_an_interceptor_does_not_end_the_network_thread(producers: Intercepted):
    class Leaving(ProducerInterceptor):
        def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
            sys.exit("a secret")

    producer, _ = producers(Leaving())
    future = producer.send(ProducerRecord("test", b"one", partition=0))
    producer.send_batch(rows("a", "b"), "test")
    producer.flush()
    assert future.result(0).offset == 0


def test_they_hear_of_a_record_that_never_got_to_a_batch(producers: Intercepted):
    """Java's onSendError, for what goes into the future and for what is raised."""
    seeing = Seeing()
    producer, _ = producers(seeing)
    producer.send(ProducerRecord("nowhere", b"v"))
    with pytest.raises(SerializationError):
        producer.send(ProducerRecord("test", 17, partition=1))
    (first, first_error), (second, second_error) = seeing.acknowledged
    assert (first.topic, first.partition, first.offset) == ("nowhere", -1, -1)
    assert "not present" in str(first_error)
    assert (second.topic, second.partition) == ("test", 1)
    assert isinstance(second_error, SerializationError)


def test_they_hear_of_a_batch_that_a_broker_refused(producers: Intercepted):
    seeing = Seeing()
    producer, client = producers(seeing)
    client.answer = refuse(ErrorCode.INVALID_RECORD)
    producer.send(ProducerRecord("test", b"v", partition=0))
    producer.flush()
    ((metadata, error),) = seeing.acknowledged
    assert metadata == RecordMetadata("test", 0)
    assert "INVALID_RECORD" in str(error)


def test_a_wrong_path_is_an_error_on_the_driver():
    from pyspark.sql.datasource import CaseInsensitiveDict
    from pyspark.sql.types import StringType, StructField, StructType

    from spark_kafka_sink.datasource.source import KprodDataSource

    schema = StructType([StructField("value", StringType())])
    made = []

    def writer(classes: str) -> object:
        options = {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "preflight": "off",
            "kafka.interceptor.classes": classes,
        }
        return KprodDataSource(CaseInsensitiveDict(options)).writer(schema, overwrite=False)

    for classes, text in (
        ("com.example.Jvm", "com.example.Jvm can't be imported: ModuleNotFoundError"),
        (f"{__name__}:NoSuch", "can't be imported: AttributeError"),
        (path(Useless), "has none of the methods on_send"),
        ("nodots", "is not an import path"),
    ):
        with pytest.raises(ConfigError, match=r"interceptor\.classes") as caught:
            writer(classes)
        assert text in str(caught.value)
    Seeing.last = made  # type: ignore[assignment]
    writer(path(Seeing))
    assert Seeing.last is made  # the driver imports it, and makes none


def test_no_interceptor_costs_nothing():
    assert Interceptors.of(()) is None


@pytest.mark.parametrize("fault", ["the thread", "the network", "the names"])
def test_a_producer_that_can_not_be_made_leaves_nothing_open(fault: str):
    seeing = Seeing()
    descriptors = set(Path("/proc/self/fd").iterdir())
    options: dict[str, object] = {
        "bootstrap.servers": "127.0.0.1:1",
        "interceptor.classes": [seeing],
    }
    if fault == "the network":
        options |= {"security.protocol": "SSL", "ssl.truststore.location": "/nowhere"}
    elif fault == "the names":  # no resolver is asked for a label of more than 63 letters
        options["bootstrap.servers"] = f"{'a' * 64}.example:9092"

    def no_thread(_run: object, _name: str) -> NetworkThread:
        raise RuntimeError("can't start new thread")

    with pytest.raises((RuntimeError, ConfigError)):
        KafkaProducer(options, start_thread=no_thread)
    assert seeing.closed == 1
    gc.collect()
    assert set(Path("/proc/self/fd").iterdir()) <= descriptors


class Remembering(ProducerInterceptor):
    """KIP-512's form, and all of a plugin's life."""

    seen: list[object]

    def configure(self, configs: Mapping[str, object]) -> None:
        Remembering.seen = [configs]

    def on_acknowledgement(
        self,
        metadata: RecordMetadata,
        error: KafkaError | None,
        headers: Headers = NO_HEADERS,
    ) -> None:
        Remembering.seen.append((metadata.record_count, list(headers), headers.read_only))


def test_an_interceptor_may_get_the_headers_of_each_record(producers: Intercepted):
    """KIP-512; a batch of columns has none."""
    producer, _ = producers(Remembering(), Seeing())
    producer.send(ProducerRecord("test", b"one", partition=0, headers=[("h", b"1")]))
    producer.flush()
    producer.send_batch(rows("two", "three"), topic="test")
    producer.flush()
    producer.close()
    with pytest.raises(IllegalStateError):
        producer.send(ProducerRecord("test", b"late", partition=0, headers=[("h", b"2")]))
    configs, *acknowledged = Remembering.seen
    assert acknowledged == [
        (1, [("h", b"1")], True),
        (2, [], True),
        (1, [("h", b"2")], True),
    ]
    assert isinstance(configs, dict)
    assert configs["linger.ms"] == 60_000
    assert len(Seeing.last.acknowledged) == 3  # without the third argument


class Plugin:
    """A serializer and a partitioner that tell of their life."""

    told: list[tuple[object, ...]] = []  # noqa: RUF012 - the class's own

    def configure(self, configs: Mapping[str, object], *more: object) -> None:
        assert not any("password" in name for name in configs)
        Plugin.told.append(("configure", configs["client.dns.lookup"], *more))

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
        return str(data).encode()

    def partition(self, topic, keys, values, partition_count, available):
        return [0] * len(values)

    def close(self) -> None:
        Plugin.told.append(("close",))


def test_serializers_and_partitioners_are_configured_and_closed():
    Plugin.told = []
    given = {
        "bootstrap.servers": "127.0.0.1:9092",
        "key.serializer": path(Plugin),
        "value.serializer": Plugin(),
        "partitioner.class": path(Plugin),
    }
    producer = KafkaProducer(given, cluster=CLUSTER, client=AnsweringClient(CLUSTER))
    lookup = "use_all_dns_ips"
    assert Plugin.told[0] == ("configure", lookup, True)  # as a class; an object is ready as it is
    assert set(Plugin.told[1:]) == {("configure", lookup)}
    made = len(Plugin.told) + 1
    producer.close()
    producer.close()
    assert Plugin.told[made - 1 :] == [("close",)] * made


class Misconfigured:
    """Neither as an interceptor nor as a serializer."""

    closed = 0

    def configure(self, configs: Mapping[str, object], *more: object) -> None:
        raise ValueError("a secret")

    def close(self) -> None:
        Misconfigured.closed += 1

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
        return b""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


def test_a_plugin_that_can_not_be_configured_is_a_wrong_option():
    with pytest.raises(ConfigError, match=r"Misconfigured\.configure raised ValueError") as caught:
        KafkaProducer(
            {"bootstrap.servers": "127.0.0.1:9092", "interceptor.classes": path(Misconfigured)}
        )
    assert "a secret" not in "".join(traceback.format_exception(caught.value))


class Unmakeable:
    """Of a wrong constructor."""

    def __init__(self) -> None:
        raise LookupError("a secret")

    def serialize(self, topic: str, data: object, headers: Headers) -> bytes:
        return b""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record


@pytest.mark.parametrize("option", ["key.serializer", "interceptor.classes"])
@pytest.mark.parametrize("given", [Unmakeable, path(Unmakeable)], ids=["class", "import path"])
def test_a_class_that_can_not_be_made_is_a_wrong_option(option: str, given: object):
    with pytest.raises(ConfigError, match=r"Unmakeable can't be made .* LookupError") as caught:
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9092", option: given})
    assert f"{option}: " in caught.value.message
    assert "a secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "wrong",
    [
        {"interceptor.classes": [Seeing, Misconfigured]},
        {"interceptor.classes": [Seeing, Unmakeable]},
        {"interceptor.classes": [Seeing, Useless]},
        {"interceptor.classes": [Seeing], "key.serializer": Misconfigured},
        {"interceptor.classes": [Seeing], "value.serializer": Unmakeable},
        {"interceptor.classes": [Seeing], "value.serializer": "nope"},
    ],
    ids=str,
)
def test_plugins_before_a_wrong_one_are_closed(wrong: Mapping[str, object]):
    """As Java's constructor does, which also closes the one that can't be configured."""
    Plugin.told = []
    Misconfigured.closed = 0
    before = {} if "key.serializer" in wrong else {"key.serializer": Plugin}
    with pytest.raises(ConfigError):
        KafkaProducer({"bootstrap.servers": "127.0.0.1:9092", **before, **wrong})
    assert Seeing.last.closed == 1
    assert Misconfigured.closed == (
        Misconfigured in [*wrong.values(), *wrong["interceptor.classes"]]
    )
    assert Plugin.told.count(("close",)) == (bool(before) and "value.serializer" in wrong)
