"""Starts a Kafka, writes a batch and a stream, kills the driver on request, and counts rows.

The demo needs a JDK and the extra ``demo``, or with ``--avro`` the extra ``demo-avro``. The exit
status is:

* 0: every row is in the topics exactly once.
* 1: a row is lost or doubled, or Kafka or the driver has failed.
* 2: a Python package is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.demo.spark_driver import BATCH_TOPIC, MICRO_BATCHES, STREAM_TOPIC
from spark_kafka_sink.demo.topic_reader import Contents, id_of_avro, read
from spark_kafka_sink.local_kafka import KafkaCluster, LocalKafkaError, SchemaRegistry
from spark_kafka_sink.local_kafka.distribution import cache_directory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

_NEEDED = ("confluent_kafka", "pyspark", "rich")
#: The modules that confluent-kafka's deserializer imports.
_NEEDED_FOR_AVRO = ("authlib", "cachetools", "fastavro")
_PARTITIONS = 6
#: The micro-batch after which the driver is killed.
_KILLED_AFTER = 2
#: The size of Kafka's jars, about.
_DOWNLOAD_MB = 92


class _DriverError(Exception):
    """The Spark driver ended with an error. The message has the last lines of the driver's
    output.
    """


class _Driver:
    """The Spark driver as a process, which leads its own process group. A kill of the group also
    ends the JVM and the Python workers.
    """

    def __init__(self, arguments: list[str], folder: Path, *, stream_only: bool) -> None:
        command = [sys.executable, "-m", "spark_kafka_sink.demo.spark_driver"]
        command += [*arguments, "--folder", str(folder)]
        self._log = folder / "driver.log"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command + ["--stream-only"] * stream_only,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._lines = self._process.stdout

    def events(self) -> Iterator[dict[str, Any]]:
        """Yields the driver's JSON events until the driver ends."""
        for line in self._lines:
            if line.startswith("{"):
                yield json.loads(line)
        if self._process.wait() != 0:
            raise _DriverError("\n".join(self._log.read_text(errors="replace").splitlines()[-15:]))

    def kill(self) -> None:
        """Kills the driver's process group with SIGKILL, like an out-of-memory killer. A driver
        that has ended is left alone.
        """
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.close()


def main(arguments: list[str] | None = None) -> int:
    """Runs the demo. Returns the exit status."""
    options = _parse(arguments)
    needed = _NEEDED + _NEEDED_FOR_AVRO * options.avro
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        extra = "demo-avro" if options.avro else "demo"
        print(
            f"The demo needs {', '.join(missing)}: pip install 'spark-kafka-sink[{extra}]'",
            file=sys.stderr,
        )
        return 2
    from rich.console import Console

    console = Console()
    try:
        with tempfile.TemporaryDirectory(prefix="kprod-demo-") as name:
            return _run(console, Path(name), options)
    except LocalKafkaError as error:
        print(error, file=sys.stderr)
    except _DriverError as error:
        print(f"The Spark driver failed:\n{error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    return 1


def _run(console: Console, folder: Path, options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        kafka = stack.enter_context(_kafka(console))
        bootstrap, rows = kafka.bootstrap, options.rows
        _create_topics(bootstrap)
        arguments = ["--bootstrap", bootstrap, "--rows", str(rows)]
        id_of: Callable[[bytes], int] = int
        if options.avro:
            console.print("Starting a schema registry ...")
            url = stack.enter_context(SchemaRegistry()).url
            console.print(f"A schema registry (Apicurio) runs at {url}.")
            arguments = [*arguments, "--registry", url]
            id_of = stack.enter_context(id_of_avro(url))
        console.print(
            f"Kafka {kafka.version} runs at {bootstrap}.\n"
            f"Spark starts, and writes {rows:,} rows as a batch and as a stream ..."
        )
        seconds = _write(console, arguments, folder, kill=options.kill_driver)
        console.print("Reading both topics with confluent-kafka, read_committed ...")
        found = {
            "batch": read(bootstrap, BATCH_TOPIC, rows, id_of),
            "stream": read(bootstrap, STREAM_TOPIC, rows, id_of),
        }
    _show(console, found, seconds)
    return 0 if all(one.is_exact for one in found.values()) else 1


@contextmanager
def _kafka(console: Console) -> Iterator[KafkaCluster]:
    """Starts a Kafka with one node, and shows a bar while Kafka's jars are downloaded."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with ExitStack() as stack:
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("Starting Kafka", total=None)
            done = threading.Event()
            watch = threading.Thread(target=_show_download, args=(progress, task, done))
            watch.start()
            try:
                kafka = stack.enter_context(KafkaCluster())
            finally:
                done.set()
                watch.join()
        yield kafka


def _show_download(progress: Progress, task: TaskID, done: threading.Event) -> None:
    """Shows the size of the downloaded files until ``done`` is set. The size is read from the
    folder of the download, because Maven and Ivy report no progress.
    """
    while not done.wait(0.3):
        size = 0
        for place in cache_directory().glob("partial-*"):
            for file in place.rglob("*.jar*"):
                try:
                    size += file.stat().st_size
                except OSError:  # it was moved meanwhile
                    continue
        if size:
            # PySpark's Ivy has each jar twice: in its cache and where it is wanted.
            megabytes = min(_DOWNLOAD_MB, size // 1_000_000)
            progress.update(
                task,
                description=f"Fetching Kafka once: {megabytes} of about {_DOWNLOAD_MB} MB",
                completed=megabytes,
                total=_DOWNLOAD_MB,
            )


def _create_topics(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    topics = [NewTopic(name, _PARTITIONS, 1) for name in (BATCH_TOPIC, STREAM_TOPIC)]
    # It must outlive its futures. Its INFO lines (level 6) are its own housekeeping.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 5})
    for future in admin.create_topics(topics).values():
        future.result(30)


def _write(console: Console, arguments: list[str], folder: Path, *, kill: bool) -> dict[str, float]:
    """Writes the batch and the stream. Returns the seconds that each write took, such as
    ``{"batch": 1.2, "stream": 9.1}``.

    With ``kill``, the driver is killed during the stream and started again. Then the seconds of the
    stream count from the second start.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}")
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    seconds = {"batch": 0.0, "stream": 0.0}
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Micro-batches", total=MICRO_BATCHES)
        stream_only = False
        while True:
            driver = _Driver(arguments, folder, stream_only=stream_only)
            try:
                for event in driver.events():
                    if event["event"] != "micro-batch":
                        seconds[event["event"]] = event["seconds"]
                        console.print(f"The {event['event']} is written: {event['seconds']:.1f} s.")
                        continue
                    progress.update(task, completed=event["number"] + 1)
                    if not console.is_terminal:  # which has the bar
                        written = event["number"] + 1
                        console.print(f"{written} of {MICRO_BATCHES} micro-batches are written.")
                    if kill and event["number"] >= _KILLED_AFTER:
                        break
                else:
                    return seconds
            finally:
                driver.kill()
            kill, stream_only = False, True
            console.print(
                f"kill -9 of the driver and its workers after micro-batch {event['number']}; "
                "starting it again ..."
            )


def _show(console: Console, found: dict[str, Contents], seconds: dict[str, float]) -> None:
    from rich.table import Table

    table = Table(title="Exactly once?")
    for head in ("write", "rows written", "rows read", "lost", "doubled", "seconds"):
        table.add_column(head, justify="left" if head == "write" else "right")
    for name, contents in found.items():
        table.add_row(
            name,
            f"{contents.expected:,}",
            f"{contents.records:,}",
            f"{contents.lost:,}",
            f"{contents.doubled:,}",
            f"{seconds[name]:.1f}",
        )
    console.print(table)
    exact = all(one.is_exact for one in found.values())
    console.print("Nothing lost, nothing doubled." if exact else "[red]Rows are not there once.[/]")


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_kafka_sink.demo",
        description="Write a batch and a stream into a real Kafka on this machine, exactly once.",
    )
    parser.add_argument(
        "--kill-driver",
        action="store_true",
        help="kill -9 the Spark driver in the middle of the stream, and start it again",
    )
    parser.add_argument(
        "--avro",
        action="store_true",
        help="write Avro with the ids of a schema registry, which is started, too",
    )
    parser.add_argument("--rows", type=int, default=200_000, help="default: 200000")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
