"""What the demo counts, and with Avro; docs/test_strangers_script.py runs README's line of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.demo.topic_reader import Contents, read
from tests.real_kafka import RealKafka


def demo(folder: Path, *arguments: str) -> str:
    """What it prints; nothing is on stderr, which a newcomer would take for a failure."""
    run = subprocess.run(
        [sys.executable, "-m", "spark_kafka_sink.demo", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert list(folder.iterdir()) == []
    return run.stdout


def rows_of(output: str) -> list[list[str]]:
    """Of its table: write, rows written, rows read, lost, doubled."""
    rows = [[cell.strip() for cell in line.split("│")[1:6]] for line in output.splitlines()]
    return [row for row in rows if row[:1] in (["batch"], ["stream"])]


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_the_demo_writes_avro_with_a_registry(tmp_path: Path) -> None:
    """confluent-kafka's deserializer reads it."""
    output = demo(tmp_path, "--avro", "--rows", "5000")
    assert "A schema registry (Apicurio) runs at http://127.0.0.1:" in output
    assert rows_of(output) == [
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
