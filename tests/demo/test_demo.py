"""What ``python -m spark_kafka_sink.demo`` counts; ``docs/test_strangers_script.py`` runs it."""

from __future__ import annotations

import pytest

from spark_kafka_sink.demo.topic_reader import Contents, read
from tests.real_kafka import RealKafka


@pytest.mark.broker
def test_lost_and_doubled_rows_are_counted(kafka: RealKafka) -> None:
    from confluent_kafka import Producer

    topic = kafka.unique_topic("demo", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in ("0", "1", "1", "3", "9"):
        producer.produce(topic, value.encode())
    producer.flush(30)
    found = read(kafka.bootstrap, topic, 5)
    assert found == Contents(expected=5, records=5, lost=2, doubled=1)
    assert not found.is_exact


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from spark_kafka_sink.demo import __main__ as demo

    monkeypatch.setattr(demo, "_NEEDED", ("no_such_package",))
    assert demo.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "The demo needs no_such_package: pip install 'spark-kafka-sink[demo]'\n"
