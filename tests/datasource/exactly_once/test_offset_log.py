"""What ``checkpointLocation`` can reach: one file of a query's checkpoint, and nothing else."""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.allow_lists import PATHS, NotAllowedError
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.offset_log import checkpoint_text
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.network.loopback import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = 'v1\n{"batchWatermarkMs":0}\n{"source":{"0":7}}'
MOST = 16 * 1024 * 1024


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a query whose batch 3 ends at offset 7 of a partition."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(LOG)
    return tmp_path


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_the_file_of_the_batch_is_read(checkpoint: Path, prefix: str) -> None:
    for location in (f"{prefix}{checkpoint}", f"{prefix}{checkpoint}/"):
        assert checkpoint_text(location, "offsets/3") == LOG
        assert Checkpoint(location).offsets(3) == {TopicPartition("source", 0): 7}


@pytest.mark.timeout(60)
def test_a_fifo_in_a_checkpoint_is_refused(checkpoint: Path) -> None:
    """Who opens it waits for a writer; a commit would wait without end."""
    os.mkfifo(checkpoint / "offsets" / "4")
    with pytest.raises(ConfigError, match="it is a FIFO, and no regular file"):
        checkpoint_text(str(checkpoint), "offsets/4")


FILES = ["metadata", "offsets/3", "offsets/4", "sources/1/9", "sources/1/9.compact"]
READS: dict[str, Callable[[Checkpoint], object]] = {
    "offsets": lambda one: one.offsets(3),
    "digest": lambda one: one.digest(3),
    "known_digest": lambda one: one.known_digest(3, "query-1"),
    "known_query_id": Checkpoint.known_query_id,
    "check": lambda one: one.check(3, "query-1"),
}


@pytest.mark.timeout(60)  # a read that waits for a writer has no end
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("read", READS)
def test_no_read_of_a_checkpoint_waits_for_a_fifo(tmp_path: Path, read: str, file: str) -> None:
    """A file may be replaced while the query runs: each read ends, with an error or without it."""
    query = '{"id":"query-1"}'
    logged = 'v1\n{}\n{"source":{"0":7}}\n{"logOffset":9}'
    for name, text in {"metadata": query, "offsets/3": logged, "sources/1/9": "v1\n"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / file)
    with suppress(ConfigError):
        READS[read](Checkpoint(str(tmp_path)))


def test_a_file_that_is_too_large_is_refused(checkpoint: Path) -> None:
    with (checkpoint / "offsets" / "4").open("wb") as file:
        file.truncate(MOST + 1)
    with pytest.raises(ConfigError, match=f"it is larger than {MOST} bytes"):
        checkpoint_text(str(checkpoint), "offsets/4")


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_of_an_object_store_is_bounded_too(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """A stream's commit has no session: pyarrow reads it."""
    content = b"v1" + bytes(MOST - 2 + more)

    class Store:
        @staticmethod
        def from_uri(uri: str) -> tuple[Store, str]:
            assert uri == "s3://bucket/orders/offsets/3"
            return Store(), "bucket/orders/offsets/3"

        def open_input_stream(self, path: str) -> io.BytesIO:
            assert path == "bucket/orders/offsets/3"
            return io.BytesIO(content)

    monkeypatch.setattr("pyarrow.fs.FileSystem", Store)
    if more:
        with pytest.raises(ConfigError, match=f"it is larger than {MOST} bytes"):
            checkpoint_text("s3://bucket/orders", "offsets/3")
    else:
        assert checkpoint_text("s3://bucket/orders", "offsets/3") == content.decode()


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("s3://b/x?scheme=http&endpoint_override={host}&region=r", "a query or an escape"),
        ("s3://b/x%3Fendpoint_override={host}", "a query or an escape"),
        ("s3://b/x#y", "a query or an escape"),
        ("s3://KEY:hunter2@b/x", "has a user"),
        ("s3://KEY:hun/ter2@b/x", "host is none"),
        ("gs://anonymous@b/x", "has a user"),
        ("s3://b/../x", "has a step"),
        ("abfss://c:hunter2@a.dfs.core.windows.net/x", "has a user"),
        ("abfss://{host}/container/x", "container@account"),
        ("abfss://c@{host}/x", "container@account"),
        ("abfss://c@a.dfs.core.windows.net.example.com/x", "container@account"),
        ("abfss://c@{host}/.dfs.core.windows.net/x", "container@account"),
        ("hf://datasets/a/b", "scheme is not supported"),
        ("http://{host}/x", "scheme is not supported"),
        ("fsspec+http://{host}/x", "scheme is not supported"),
        ("mock:///x", "scheme is not supported"),
        ("file://{host}/x", "scheme is not supported"),
        ("S3://b/x", "scheme is not supported"),
    ],
)
def test_a_uri_that_names_more_than_a_file_is_refused(location: str, why: str) -> None:
    """Else the driver would send its credentials to a host that an option names."""
    arrived: list[socket.socket] = []
    with (
        serving(lambda connection, _: arrived.append(connection)) as (host, port),
        pytest.raises(ConfigError, match=why) as raised,
    ):
        checkpoint_text(location.format(host=f"{host}:{port}"), "offsets/3")
    assert arrived == []
    told = f"{raised.value} {raised.value.__cause__}"
    assert "hunter2" not in told
    assert "ter2" not in told


@pytest.mark.parametrize("listed", ["", "/nowhere", "s3://b"])
def test_a_checkpoint_outside_the_list_is_not_read(
    checkpoint: Path, listed: str, limit: Callable[[str, str], None]
) -> None:
    limit(PATHS, listed)
    for location in (str(checkpoint), f"file://{checkpoint}", "s3://bucket/x", "gs://b/x"):
        with pytest.raises(NotAllowedError, match=f"{PATHS} of this process"):
            checkpoint_text(location, "offsets/3")
    limit(PATHS, f"gs://b, {checkpoint}")
    assert checkpoint_text(str(checkpoint), "offsets/3") == LOG


def test_no_error_shows_what_is_in_the_file(checkpoint: Path) -> None:
    """It may be another file than an offset log: the option names it."""
    (checkpoint / "offsets" / "4").write_text("canary9\ncanary9\n")
    with pytest.raises(ConfigError, match="its format is none") as raised:
        Checkpoint(str(checkpoint)).offsets(4)
    assert "canary9" not in str(raised.value)


def test_spark_reads_the_file_by_the_same_rules(
    spark: SparkSession, checkpoint: Path, limit: Callable[[str, str], None]
) -> None:
    assert checkpoint_text(str(checkpoint), "offsets/3", spark) == LOG
    assert checkpoint_text(f"file://{checkpoint}/", "offsets/3", spark) == LOG
    os.mkfifo(checkpoint / "offsets" / "4")
    with (checkpoint / "offsets" / "5").open("wb") as file:
        file.truncate(MOST + 1)
    for location, number, why in (
        (str(checkpoint), 4, "FIFO"),
        (str(checkpoint), 5, f"Spark found 0 files of at most {MOST} bytes"),
        (str(checkpoint), 6, "can't be read"),
        (f"{checkpoint.parent}/{{x,{checkpoint.name}}}", 3, "as a pattern"),
        ("s3a://b/x?y=z", 3, "a query or an escape"),
        ("http://127.0.0.1/x", 3, "scheme is not supported"),
    ):
        with pytest.raises(ConfigError, match=why):
            checkpoint_text(location, f"offsets/{number}", spark)
    limit(PATHS, "/nowhere")
    with pytest.raises(NotAllowedError):
        checkpoint_text(str(checkpoint), "offsets/3", spark)
