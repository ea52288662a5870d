"""Reads the end offsets of a micro-batch's Kafka sources from Spark's offset log.

Owns: finding and reading ``checkpointLocation/offsets/<batchId>``. Never: its content
(``source_offsets.py``), a commit of offsets (``transactions/offset_commits.py``).

Spark writes that file before the batch begins, and never changes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spark_kafka_sink.datasource.exactly_once.source_offsets import source_offsets
from spark_kafka_sink.errors import ConfigError, DataError, safe_text
from spark_kafka_sink.protocol.cluster import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Bytes of a file: 100 000 partitions take three million.
_MOST_BYTES: Final = 16 * 1024 * 1024


def offsets_by_spark(
    session: SparkSession, checkpoint: str, batch_id: int
) -> dict[TopicPartition, int]:
    """Reads with Spark, from every file system that it supports, classic and over Connect."""
    path = _path(checkpoint, batch_id)
    try:
        rows = session.read.text(path, wholetext=True).collect()
    except Exception as error:
        raise _unreadable(path, error) from error
    return _offsets("".join(row[0] for row in rows), path)


def offsets_by_arrow(checkpoint: str, batch_id: int) -> dict[TopicPartition, int]:
    """Reads in a process without a session: local paths, and URIs that pyarrow supports (s3, gs,
    abfss, hdfs).
    """
    from pyarrow import fs

    path = _path(checkpoint, batch_id)
    # Databricks mounts DBFS.
    uri = path.replace("dbfs:/", "/dbfs/", 1) if path.startswith("dbfs:/") else path
    try:
        found, inside = fs.FileSystem.from_uri(uri) if ":" in uri else (fs.LocalFileSystem(), uri)
        with found.open_input_stream(inside) as stream:
            text = stream.read(_MOST_BYTES).decode()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return _offsets(text, path)


def _path(checkpoint: str, batch_id: int) -> str:
    return f"{checkpoint.rstrip('/')}/offsets/{batch_id}"


def _offsets(text: str, path: str) -> dict[TopicPartition, int]:
    try:
        return source_offsets(text)
    except DataError as error:
        raise ConfigError(f"offsetsGroup: {safe_text(path, 200)}: {error.message}") from error


def _unreadable(path: str, error: Exception) -> ConfigError:
    first = str(error).partition("\n")[0]
    return ConfigError(
        f"offsetsGroup: {safe_text(path, 200)} can't be read: {safe_text(first, 200)}",
        hint="checkpointLocation must be given as an option, and be the query's own; in a stream "
        "pyarrow reads it, in foreach_batch and transaction Spark does, from every file system "
        "that it supports",
    )
