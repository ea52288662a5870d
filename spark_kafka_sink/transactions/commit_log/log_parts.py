"""How a state is stored in the commit log: as one record, or as several when it is long.

Owns: the keys and the values of these records; pure functions. Never: what a state means
(``transactions/commit_state.py``), a topic.

=============  ===================================================================
key            value
=============  ===================================================================
``{key}``      the whole state, or the first part of it
``{key}#{n}``  part n, from 1 on
=============  ===================================================================

A part is a line of JSON, ``{"part":0,"of":3,"revision":123}``, then its bytes of the state. All
parts of a state are written in one transaction and carry its revision, so a part of another
revision is a leftover, and is ignored. ``#`` never occurs in a key (``transactional_ids.py``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from spark_kafka_sink.errors import CommitError

#: Bytes of a state in one record. A topic takes 1 MiB by default.
PART_BYTES: Final = 512 * 1024
#: Three integers with their names, in bytes.
_LONGEST_LINE: Final = 200
_PART: Final = b'{"part":'


def belongs_to(key: bytes, record_key: bytes) -> bool:
    """Whether the record belongs to ``key``."""
    return record_key == key or record_key.startswith(key + b"#")


def key_of(record_key: bytes) -> bytes:
    """The key that the record belongs to."""
    return record_key.partition(b"#")[0]


def cut(
    key: bytes,
    state: bytes | None,
    revision: int,
    existing: Collection[bytes],
    limit: int = PART_BYTES,
) -> dict[bytes, bytes | None]:
    """The records that replace the ``existing`` record keys by ``state``. A value None is a
    tombstone; a state None removes all.
    """
    records: dict[bytes, bytes | None] = {}
    # (A state that begins like a part would be read as one.)
    if state is not None and len(state) <= limit and not state.startswith(_PART):
        records[key] = state
    elif state is not None:
        count = -(-len(state) // limit)
        for part in range(count):
            line = json.dumps(
                {"part": part, "of": count, "revision": revision}, separators=(",", ":")
            )
            records[_record_key(key, part)] = (
                line.encode() + b"\n" + state[part * limit : (part + 1) * limit]
            )
    return {**dict.fromkeys(sorted(set(existing) - records.keys())), **records}


def join(key: bytes, records: Mapping[bytes, bytes]) -> bytes | None:
    """The state, or None. CommitError when one of its records is missing, or was not written by
    this package.
    """
    first = records.get(key)
    if first is None or not first.startswith(_PART):
        return first
    revision, count = None, 1
    parts: list[bytes] = []
    while len(parts) < count:
        record_key = _record_key(key, len(parts))
        try:
            line, _, data = records[record_key].partition(b"\n")
            # Our line is short; other content may be nested more deeply than the parser allows.
            fields = json.loads(line[:_LONGEST_LINE])
            found = (int(fields["part"]), int(fields["of"]), int(fields["revision"]))
        except (KeyError, ValueError, TypeError, OverflowError):
            found, data = (-1, -1, -1), b""
        if revision is None:
            revision, count = found[2], found[1]
        if found != (len(parts), count, revision) or count < 1:
            raise CommitError(
                f"the commit log's state of '{key.decode(errors='replace')}' is not whole: part "
                f"{len(parts)} of {count} is missing",
                hint="no other client may write to the topic of commitLogTopic, and its "
                "cleanup.policy must be compact",
            )
        parts.append(data)
    return b"".join(parts)


def _record_key(key: bytes, part: int) -> bytes:
    return key if part == 0 else key + b"#%d" % part
