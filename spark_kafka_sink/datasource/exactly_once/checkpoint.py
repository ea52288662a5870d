"""Reads a query's checkpoint: the query's id, and the source offsets of a micro-batch.

:class:`Checkpoint` also computes a *digest* of a micro-batch, by which the sink recognises a
micro-batch that Spark runs again. ``offset_log.py`` reads the files, and restricts which files may
be read.

The digest is a hash of the query's id, the batch's number and the end offsets of the sources:

- A batch that runs again has the same digest, even if its rows have changed. Spark writes the
  offsets before the batch begins and never changes them.
- Batches of different queries have different digests.
- A batch of a copied checkpoint has the same digest as the original's batch with the same number
  and offsets. The copy has the query id of the original.

The offset of a file source only counts the source's batches. So the list of the batch's files is
hashed as well.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import ConfigError, DataError
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.datasource.exactly_once.offset_log import checkpoint_text, shown
from spark_kafka_sink.datasource.exactly_once.source_offsets import (
    divided_versions,
    file_sources,
    source_offsets,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.transactional_ids import is_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

#: Hexadecimal digits of a digest.
_LENGTH: Final = 32
#: The number of lines before the sources' offsets: the format, and the batch's metadata.
_HEAD: Final = 2

#: Checkpoints that this process could not read.
_unreadable: ProcessLocal[set[str]] = ProcessLocal(set)


class Checkpoint:
    """The files of a query's checkpoint in the directory ``location``. Each file is read at most
    once. If ``session`` is set, Spark reads the files. If ``session`` is None, this process reads
    the files (``offset_log``).
    """

    def __init__(self, location: str, session: SparkSession | None = None) -> None:
        self._location = location
        self._session = session
        self._texts: dict[str, str] = {}

    def offsets(self, number: int) -> dict[TopicPartition, int]:
        """The end offset of the micro-batch ``number``, for every partition of the query's Kafka
        sources. The query's next batch begins at these offsets. Raises ConfigError if the batch's
        file in Spark's offset log can't be read.
        """
        try:
            return source_offsets(self._text(f"offsets/{number}"))
        except DataError as error:
            raise ConfigError(
                f"{shown(self._location)}: batch {number}: {error.message}"
            ) from error

    def divided_versions(self, number: int) -> list[int]:
        """The Delta table versions that the micro-batch ``number`` has read only in part. Empty if
        the checkpoint can't be read.
        """
        try:
            return divided_versions(self._text(f"offsets/{number}"))
        except (ConfigError, DataError):
            return []

    def digest(self, number: int) -> str:
        """The digest of the micro-batch ``number``, 32 hexadecimal digits. It is a hash of the
        query's id, of ``number``, and of the end offsets of the sources. A batch that Spark runs
        again has the same digest. Raises ConfigError if a file can't be read.
        """
        offset_log = self._text(f"offsets/{number}")
        files = [self._files(source, batch) for source, batch in file_sources(offset_log)]
        return digest_of(self._query_id(), number, offset_log, files)

    def _files(self, source: str, batch: int) -> str:
        """The text of the checkpoint file that lists the input files of the batch ``batch``. The
        checkpoint has one folder for each file source, and ``source`` is the name of this folder.
        """
        # For some batches, Spark writes only a compacted checkpoint file. It lists the input files
        # of this batch and of all earlier batches.
        file = f"sources/{source}/{batch}"
        return _if_readable(lambda: self._text(file)) or self._text(f"{file}.compact")

    def check(self, number: int, query_id: str) -> None:
        """Checks that this checkpoint belongs to the running query. ``query_id`` is the id of this
        query, and ``number`` is the id of its running micro-batch. Raises ConfigError in two cases:

        - The checkpoint has another query id. If ``query_id`` is empty, the ids are not compared.
        - A later batch than ``number`` has begun in the checkpoint.

        If a file can't be read, no error is raised here.
        """
        problem = None
        found = self.known_query_id()
        if query_id and found and found != query_id:
            problem = f"is of query {found}, and query {query_id} is writing"
        elif _if_readable(lambda: self._text(f"offsets/{number + 1}")):
            problem = f"is ahead: batch {number} is to be written, and {number + 1} has begun there"
        if problem is not None:
            raise ConfigError(
                f"{shown(self._location)} {problem}",
                hint="give the write its query's checkpointLocation, not the checkpointLocation of "
                "an earlier query",
            )

    def known_query_id(self) -> str:
        """The id of the checkpoint's query. Spark writes this id at the first start of the query.
        Empty if the id can't be read.
        """
        return _if_readable(self._query_id)

    def known_digest(self, number: int, query_id: str | None = None) -> str:
        """The :meth:`digest` of the micro-batch ``number``, or an empty text if it is unknown. It
        is unknown if the checkpoint can't be read, or if :meth:`check` raises an error for
        ``query_id``.

        The first failure is logged. After a failure, a process without a Spark session does not try
        this checkpoint again.
        """
        if self._session is None and self._location in _unreadable():
            return ""
        try:
            if query_id is not None:
                self.check(number, query_id)
            return self.digest(number)
        except ConfigError as error:
            if self._location not in _unreadable():
                _unreadable().add(self._location)
                _log.info(
                    "kprod: a repeated micro-batch is recognised by its rows and bytes only, "
                    "because %s",
                    error.message,
                )
            return ""

    def _text(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = checkpoint_text(self._location, file, self._session)
        return self._texts[file]

    def _query_id(self) -> str:
        found = (json_object(self._text("metadata")) or {}).get("id")
        if not isinstance(found, str) or not is_part(found):
            raise ConfigError(f"{shown(self._location)}: its file 'metadata' has no query id")
        return found


def _if_readable(read: Callable[[], str]) -> str:
    try:
        return read()
    except ConfigError:
        return ""


def digest_of(query_id: str, number: int, offset_log: str, files: Iterable[str] = ()) -> str:
    """Hashes the identity of a micro-batch: the query's id, the batch's number, the text of its
    offset-log file, and the texts of ``files``, which list the input of file sources. Returns 32
    hexadecimal digits.
    """
    ends = offset_log.split("\n")[_HEAD:]
    identity = json.dumps([query_id, number, ends, list(files)])
    return hashlib.sha256(identity.encode()).hexdigest()[:_LENGTH]
