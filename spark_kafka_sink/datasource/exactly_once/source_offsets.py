"""Parses the end offsets of a micro-batch's sources from the text of Spark's offset log.

- :func:`source_offsets` finds the end offsets of Kafka sources. ``transactions/offset_commits.py``
  commits them.
- :func:`file_sources` finds the batches of file sources.
- :func:`divided_versions` finds the versions of Delta tables that a batch has read in part.

``offset_log.py`` reads the text from the file ``checkpointLocation/offsets/<batchId>``. Spark's
OffsetSeqLog writes the file before the batch begins, and never changes it. The lines of the file:

- The first line is the format, ``v1`` or ``v2``. Spark 4.2 has ``v2``, with the setting
  spark.sql.streaming.offsetLog.formatVersion.
- The second line is the batch's metadata.
- In ``v1``, each further line is the end offset of a source, in the order of the sources. ``-``
  means that the source has no offset so far.
- In ``v2``, each further line is ``<source's id>:<offset>``. A source without an offset has no
  line.

A Kafka source's offset is ``{"topic":{"0":123}}`` (JsonUtils).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.protocol.cluster import TopicPartition

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_INT32 = 2**31 - 1
_LARGEST_INT64 = 2**63 - 1
_NO_OFFSET = "-"
#: A source's name, which is the name of a folder.
_SOURCE = re.compile(r"[A-Za-z0-9_-]{1,200}")
#: The one field of a file source's offset (FileStreamSourceOffset).
_OF_FILES = "logOffset"
#: Fields of the offset of Delta's source, and an index that is larger than the index of any file.
_OF_DELTA = {"reservoirId", "reservoirVersion", "index", "isStartingVersion"}
_AFTER_FILES = 2**62


def source_offsets(text: str) -> dict[TopicPartition, int]:
    """The offset at which the next batch begins, for every partition of the batch's Kafka sources.
    ``text`` is the content of a file of Spark's offset log. Sources other than Kafka are skipped.

    If two sources of a query read the same partition, the lower offset counts, because both sources
    have read up to that offset. Raises DataError if the text is not an offset log of format v1 or
    v2.
    """
    found: dict[TopicPartition, int] = {}
    for _, offset in _offsets(text):
        for tp, end in _of_kafka(offset).items():
            found[tp] = min(end, found.get(tp, end))
    return found


def file_sources(text: str) -> Iterator[tuple[str, int]]:
    """Yields the folder name and the last batch number of each file source in the text of an offset
    log. The folder is in ``checkpointLocation/sources``. Raises DataError if the text is not an
    offset log of format v1 or v2, or if the entry of a file source is malformed.
    """
    for name, offset in _offsets(text):
        if isinstance(offset, dict) and offset.keys() == {_OF_FILES}:
            batch = offset[_OF_FILES]
            if type(batch) is not int or batch < 0 or not _SOURCE.fullmatch(name):
                raise _malformed("a file source's offset is not a number, or its name none")
            yield name, batch


def divided_versions(text: str) -> list[int]:
    """The versions of Delta tables that a batch has read only in part. ``text`` is the content of
    the batch's file in Spark's offset log. Raises DataError if the text is not an offset log of
    format v1 or v2.

    The first snapshot of a table, which a query without startingVersion reads, is never in the
    result.
    """
    found = []
    for _, offset in _offsets(text):
        if not isinstance(offset, dict) or _OF_DELTA - offset.keys():
            continue
        # Delta's offset (DeltaSourceOffset) is a version, and the index of a file in that version.
        # The index is negative before the first file.
        version, index = offset["reservoirVersion"], offset["index"]
        is_within = type(index) is int and 0 <= index < _AFTER_FILES
        # (A snapshot has inserts only, so it separates no delete from an insert.)
        if is_within and type(version) is int and not offset["isStartingVersion"]:
            found.append(version)
    return found


def _offsets(text: str) -> Iterator[tuple[str, object]]:
    """Yields the name and the offset of each source that has an offset in the text of an offset
    log. In the format ``v2``, the name is the source's id. In the format ``v1``, the name is the
    number of the source, from 0.
    """
    version, _, rest = text.partition("\n")
    version = version.strip()
    if version not in ("v1", "v2"):
        # No other text: the file may be something else.
        shown = version if re.fullmatch(r"v\d{1,3}", version) else "none"
        raise _malformed(f"its format is {shown}; v1 and v2 are supported")
    metadata, *lines = rest.split("\n")
    if not isinstance(_json(metadata), dict):
        raise _malformed("its second line is not the batch's metadata")
    for index, line in enumerate(lines):
        name, offset = str(index), line.strip()
        if version == "v2" and offset:
            name, colon, offset = offset.partition(":")
            if not colon:
                raise _malformed("a source's line has no ':'")
        if offset not in ("", _NO_OFFSET):
            yield name, _json(offset)


def _of_kafka(offset: object) -> dict[TopicPartition, int]:
    """The offsets of a Kafka source by partition. Empty if ``offset`` does not have the form of a
    Kafka source's offset.
    """
    found: dict[TopicPartition, int] = {}
    if not isinstance(offset, dict):
        return {}
    for topic, partitions in offset.items():
        if not _TOPIC.fullmatch(topic) or not isinstance(partitions, dict):
            return {}
        for partition, end in partitions.items():
            if not _PARTITION.fullmatch(partition) or int(partition) > _LARGEST_INT32:
                return {}
            if type(end) is not int or not 0 <= end <= _LARGEST_INT64:  # true is an int, too
                return {}
            found[TopicPartition(topic, int(partition))] = end
    return found


def _json(line: str) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        value = None
        sound = False
    else:
        sound = True
    if not sound:
        raise _malformed("a line is not JSON")
    return value


def _malformed(why: str) -> DataError:
    return DataError(
        f"Spark's offset log of the batch can't be read: {why}",
        hint="the offset log is the file with the batch's number in checkpointLocation/offsets",
    )
