"""What the demo does with its driver, counts and shows; docs/test_strangers_script.py runs README's
line of it. Its Spark driver: test_demo_driver.py.
"""

from __future__ import annotations

import io
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import Progress

from spark_kafka_sink.demo import __main__ as demo
from spark_kafka_sink.demo.topic_reader import Contents, read
from tests.programs import is_running, run_python
from tests.real_kafka import RealKafka
from tests.waiting import wait_for

#: A program in the place of the Spark driver, with its arguments and its events. Its first life
#: writes the batch and half of the stream, and with LASTING ends when it is killed.
DRIVER = """#!{python}
import argparse, json, subprocess, sys, time
from pathlib import Path
from confluent_kafka import Producer

parser = argparse.ArgumentParser()
parser.add_argument("-m")
parser.add_argument("--bootstrap")
parser.add_argument("--folder", type=Path)
parser.add_argument("--rows", type=int)
parser.add_argument("--stream-only", action="store_true")
options = parser.parse_args()
producer = Producer({{"bootstrap.servers": options.bootstrap}})
half = options.rows // 2

def write(topic, ids):
    for number in ids:
        producer.produce(topic, str(number).encode())
    producer.flush(30)

def say(event, **fields):
    print(json.dumps({{"event": event, **fields}}), flush=True)

print("a line that is no event")
if not options.stream_only:
    worker = subprocess.Popen(["sleep", "600" if {lasting} else "0"])
    Path("{worker}").write_text(str(worker.pid))
    write("{batch}", range(options.rows))
    say("batch", seconds=1.25)
    write("{stream}", range(half))
    for number in range(4):
        say("micro-batch", number=number)
    if {lasting}:
        time.sleep(600)
write("{stream}", range(half - {again}, options.rows))
say("micro-batch", number=4)
say("stream", seconds=2.5)
"""


def table(shown: str) -> list[list[str]]:
    """The cells of its rows, without the seconds."""
    cells = ([cell.strip() for cell in line.split("│")[1:6]] for line in shown.splitlines())
    return [row for row in cells if row[:1] in (["batch"], ["stream"])]


@pytest.fixture
def drive(
    kafka: RealKafka, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str, str], int]:
    """``drive(program, *arguments)``: the demo on the session's broker, with topics of its own and
    ``program`` as its driver; its exit status.
    """
    topics = {name: f"demo-{name}-{uuid.uuid4().hex[:12]}" for name in ("batch", "stream")}
    monkeypatch.setattr(demo, "BATCH_TOPIC", topics["batch"])
    monkeypatch.setattr(demo, "STREAM_TOPIC", topics["stream"])
    running = SimpleNamespace(bootstrap=kafka.bootstrap, version="4")
    monkeypatch.setattr(demo, "KafkaCluster", lambda: nullcontext(running))
    for name, value in {"COLUMNS": "120", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)

    def with_driver(program: str, *arguments: str) -> int:
        path = tmp_path / "driver"
        given = {"python": sys.executable, "worker": tmp_path / "worker", **topics}
        path.write_text(program.format(**given))
        path.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(path))
            return demo.main(list(arguments))

    return with_driver


def driver(*, lasting: bool = False, again: int = 0) -> str:
    """:data:`DRIVER`; its second half writes ``again`` rows of the first one again."""
    return DRIVER.replace("{lasting}", str(lasting)).replace("{again}", str(again))


@pytest.mark.broker
def test_a_killed_driver_is_started_again_for_the_rest(
    drive: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers are killed with it, and what its second life writes is the rest of the stream."""
    assert drive(driver(lasting=True), "--kill-driver", "--rows", "1000") == 0
    shown = capsys.readouterr().out
    assert "kill -9 of the driver and its workers after micro-batch 2; starting it again" in shown
    assert table(shown) == [
        ["batch", "1,000", "1,000", "0", "0"],
        ["stream", "1,000", "1,000", "0", "0"],
    ]
    assert "Nothing lost, nothing doubled." in shown
    worker = int((tmp_path / "worker").read_text())
    wait_for(lambda: not is_running(worker), 60, "the end of the worker")


@pytest.mark.broker
def test_rows_that_come_twice_are_shown_and_fail_the_demo(
    drive: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert drive(driver(again=3), "--rows", "100") == 1
    shown = capsys.readouterr().out
    assert table(shown) == [["batch", "100", "100", "0", "0"], ["stream", "100", "103", "0", "3"]]
    assert "Rows are not there once." in shown
    assert "kill -9" not in shown


@pytest.mark.broker
def test_a_driver_that_fails_ends_the_demo_with_its_log(
    drive: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the last lines, of which Spark writes hundreds. It gets the address of the registry."""
    registry = SimpleNamespace(url="http://127.0.0.1:1")
    monkeypatch.setattr(demo, "SchemaRegistry", lambda: nullcontext(registry))
    failing = (
        '#!/bin/sh\nfor line in $(seq 20); do echo "line $line"; done >&2\necho "$@" >&2\nexit 3\n'
    )
    assert drive(failing, "--avro") == 1
    error = capsys.readouterr().err.splitlines()
    assert error[:3] == ["The Spark driver failed:", "line 7", "line 8"]
    assert error[-2] == "line 20"
    assert "--registry http://127.0.0.1:1 --folder " in error[-1]


def test_a_kafka_that_does_not_start_is_an_error_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert demo.main([]) == 1
    assert f"JAVA_HOME is {tmp_path}" in capsys.readouterr().err


class Looks(threading.Event):
    """The end of a start: at each wait comes the next of ``steps``, and with the last one it."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self.steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        self.steps.pop(0)()
        return not self.steps


def test_the_bar_counts_what_is_there_of_kafkas_jars(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A resolver says nothing meanwhile; and PySpark's Ivy has each jar twice."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jars = tmp_path / "spark_kafka_sink" / "partial-4.3.1-abc" / "jars"
    jars.mkdir(parents=True)
    progress = Progress(console=Console(file=io.StringIO()))
    task = progress.add_task("Starting Kafka", total=None)
    shown: list[str] = []

    def fetch(name: str, megabytes: int) -> None:
        shown.append(progress.tasks[0].description)
        with (jars / name).open("wb") as file:
            file.truncate(megabytes * 1_000_000)

    demo._show_download(
        progress,
        task,
        Looks(
            lambda: fetch("a-list.txt", 7),
            lambda: fetch("kafka.jar", 5),
            lambda: fetch("more.jar.part", 500),
            lambda: shown.append(progress.tasks[0].description),
        ),
    )
    assert shown == [
        "Starting Kafka",
        "Starting Kafka",
        "Fetching Kafka once: 5 of about 92 MB",
        "Fetching Kafka once: 92 of about 92 MB",
    ]


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
    assert table(run.stdout) == [
        ["batch", "5,000", "5,000", "0", "0"],
        ["stream", "5,000", "5,000", "0", "0"],
    ]


@pytest.mark.broker
def test_lost_and_doubled_rows_are_counted(kafka: RealKafka) -> None:
    from confluent_kafka import Producer

    topic = kafka.unique_topic("demo", 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for value in (b"0", b"1", b"1", b"3", b"9", None):
        producer.produce(topic, value)
    producer.flush(30)
    found = read(kafka.bootstrap, topic, 5)
    assert found == Contents(expected=5, records=5, lost=2, doubled=1)
    assert not found.is_exact


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_NEEDED", ("no_such_package",))
    assert demo.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "The demo needs no_such_package: pip install 'spark-kafka-sink[demo]'\n"
