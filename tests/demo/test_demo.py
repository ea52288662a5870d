"""What the demo counts, and with Avro; docs/test_strangers_script.py runs README's line of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.demo.topic_reader import Contents, read
from tests.programs import run_python
from tests.real_kafka import RealKafka


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_the_demo_writes_avro_with_a_registry(tmp_path: Path) -> None:
    """confluent-kafka's deserializer reads it. Nothing is on stderr, which a newcomer would take
    for a failure.
    """
    program = ("-m", "spark_kafka_sink.demo", "--avro", "--rows", "5000")
    environment = {"COLUMNS": "120", "NO_COLOR": "1"}
    run = run_python(*program, cwd=tmp_path, environment=environment, timeout=600)
    assert run.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert "A schema registry (Apicurio) runs at http://127.0.0.1:" in run.stdout
    table = [[cell.strip() for cell in line.split("│")[1:6]] for line in run.stdout.splitlines()]
    assert [row for row in table if row[:1] in (["batch"], ["stream"])] == [
        ["batch", "5,000", "5,000", "0", "0"],
        ["stream", "5,000", "5,000", "0", "0"],
    ]


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
