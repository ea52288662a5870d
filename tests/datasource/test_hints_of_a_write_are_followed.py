"""A hint of a write's plan, or of the settings of its topic, works when it is followed."""

from __future__ import annotations

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from spark_kafka_sink.base.errors import CommitError, ConfigError, DeliveryError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.topic_checks import report_warnings, warnings_of
from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.datasource.write.letter_counts import check_letters
from spark_kafka_sink.datasource.write.write_task import TransactionTime

Options = dict[str, str]

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", StringType())])
OFF = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "preflight": "off"}
SIZE, CODEC = "max.message.bytes", "compression.type"

#: Options, the topic's settings, words of the hint, and for each way that the hint names the
#: options and the settings that are given then.
SETTINGS: list[tuple[Options, Options, str, list[tuple[Options, Options]]]] = [
    ({}, {SIZE: "1000000"}, f"raise {SIZE}, or lower kafka.max.request.size",
     [({}, {SIZE: "1048588"}), ({"kafka.max.request.size": "1000000"}, {SIZE: "1000000"})]),
    ({"kafka.batch.size": "20000", "kafka.max.request.size": "10000"}, {SIZE: "10000"},
     f"lower kafka.batch.size, or raise {SIZE}",
     [({"kafka.batch.size": "9000"}, {SIZE: "10000"}), ({}, {SIZE: "20000"})]),
    ({"kafka.compression.type": "gzip"}, {CODEC: "lz4"},
     f"set kafka.{CODEC}=lz4, or the topic's {CODEC} to gzip or producer",
     [({"kafka.compression.type": "lz4"}, {CODEC: "lz4"}), ({}, {CODEC: "gzip"}),
      ({}, {CODEC: "producer"})]),
    ({"kafka.compression.type": "gzip"}, {CODEC: "uncompressed"}, f"set kafka.{CODEC}=none, or",
     [({"kafka.compression.type": "none"}, {CODEC: "uncompressed"})]),
    ({"kafka.compression.type": "none"}, {CODEC: "lz4"}, "to uncompressed or producer",
     [({}, {CODEC: "uncompressed"}), ({}, {CODEC: "producer"})]),
]  # fmt: skip


def warned(options: Options, settings: Options) -> list[str]:
    config = parse_sink_config(OFF | options)
    return [str(one.error.hint) for one in warnings_of(config.producer, "t", settings)]


@pytest.mark.parametrize(("options", "settings", "words", "ways"), SETTINGS)
def test_the_hint_of_a_topics_setting_ends_its_warning(
    options: Options, settings: Options, words: str, ways: list[tuple[Options, Options]]
) -> None:
    (hint,) = warned(options, settings)
    assert words in hint
    for changes, then in ways:
        assert warned(options | changes, settings | then) == []


def test_the_hint_of_a_report_topic_ends_its_warning() -> None:
    (warning,) = report_warnings("reports", {SIZE: "1000"})
    assert warning.error.hint == f"raise {SIZE} of the topic that reportTopic names"
    assert not list(report_warnings("reports", {SIZE: "1048588"}))


@pytest.mark.parametrize(
    ("way", "words"),
    [("writer", 'use .mode("append")'), ("streamWriter", 'outputMode("append")')],
)
def test_the_mode_of_a_hint_plans(way: str, words: str) -> None:
    """Spark calls a source with overwrite=False for append."""
    with pytest.raises(ConfigError) as raised:
        getattr(KprodDataSource(CaseInsensitiveDict(OFF)), way)(SCHEMA, overwrite=True)
    assert words in str(raised.value.hint)
    getattr(KprodDataSource(CaseInsensitiveDict(OFF)), way)(SCHEMA, overwrite=False)


def test_columns_that_are_made_by_hand_plan_without_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KprodDataSource, "_has_arrow_stream_writer", lambda _: False)
    named = CaseInsensitiveDict(OFF | {"valueColumns": "*"})
    with pytest.raises(ConfigError) as raised:
        KprodDataSource(named).streamWriter(SCHEMA, overwrite=False)
    assert "make the columns key, value and headers yourself" in str(raised.value.hint)
    KprodDataSource(CaseInsensitiveDict(OFF)).streamWriter(SCHEMA, overwrite=False)


LETTERS = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}


@pytest.mark.parametrize(
    ("option", "value", "raised_to"),
    [("errors.max.records", "4", "5"), ("errors.max.fraction", "0.4", "0.5")],
)
def test_a_limit_of_letters_that_is_raised_lets_the_write_go(
    option: str, value: str, raised_to: str
) -> None:
    def check(limit: str, bad_rows: int) -> None:
        config = parse_sink_config(OFF | LETTERS | {option: limit})
        assert config.dead_letters is not None
        check_letters(config.dead_letters, bad_rows, 10, "so the write fails")

    with pytest.raises(CommitError) as raised:
        check(value, 5)
    assert raised.value.hint == f"correct the rows, or raise {option}"
    check(raised_to, 5)
    check(value, 4)


def times(timeout_ms: str) -> TransactionTime:
    """Of a write with this option, of which the driver needs three seconds."""
    config = parse_sink_config(
        OFF | {"deliveryGuarantee": "exactly-once", "kafka.transaction.timeout.ms": timeout_ms}
    )
    return TransactionTime(config.producer.transaction_timeout_ms, 3_000)


def test_a_transaction_s_time_that_is_raised_lets_the_task_go() -> None:
    with pytest.raises(DeliveryError) as raised:
        times("10000").check(8_000, 0)
    assert "kafka.transaction.timeout.ms of its first row: raise it" in str(raised.value.hint)
    times("11000").check(8_000, 0)


def test_a_rate_or_a_time_that_is_raised_lets_the_task_go() -> None:
    with pytest.raises(DeliveryError) as raised:
        times("10000").check_rate(0, 100, 10_000, "maxRecordsPerSecond=10", 0)
    assert "raise the limit or kafka.transaction.timeout.ms" in str(raised.value.hint)
    times("10000").check_rate(0, 100, 5_000, "maxRecordsPerSecond=20", 0)
    times("13000").check_rate(0, 100, 10_000, "maxRecordsPerSecond=10", 0)
