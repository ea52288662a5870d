"""The format of a state in the commit log: the keys and the values of its records.

A key of the commit log is the name of a query or a job. The log has a state for each key. A state
consists of one or more *documents*, each in JSON:

* The main document has the state, but not the recorded writes.
* Each *recorded write* has a document of its own. It is one write of a
  ``spark_kafka_sink.transaction`` block. It is recorded at its own end, before the batch of the
  block is decided.

A document is one record. Exception: a document of more than PIECE_BYTES bytes is split into several
records. The key of each record begins with the key of the commit log (:func:`documents`,
:func:`cut`).

docs/design/commit-protocol.md ("The topic") describes the format. ``transactions/commit_state.py``
has the content of a document.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from spark_kafka_sink.base.errors import CommitLogError

#: The maximum number of bytes of a document in one record. By default a topic accepts record
#: batches of at most 1 MiB.
PIECE_BYTES: Final = 512 * 1024
#: The maximum length of the line of JSON at the beginning of a piece: three integers with names.
_LONGEST_LINE: Final = 200
_PIECE: Final = b'{"part":'


def key_of(record_key: bytes) -> bytes:
    """Returns the key of the commit log to which the record with the key ``record_key`` belongs.
    For example, ``b"orders"`` for ``b"orders#w0"``.
    """
    return record_key.partition(b"#")[0]


def documents(key: bytes, state: bytes | None, parts: Sequence[bytes]) -> dict[bytes, bytes]:
    """Returns the documents of a key of the commit log, by name. For example, the key ``b"orders"``
    has these documents:

    * ``b"orders"``: the main document, ``state``. If ``state`` is None, the result has no main
      document.
    * ``b"orders#w0"``, ``b"orders#w1"`` and so on: ``parts``, a document for each recorded write
      (``CommitState.parts``).

    The name of a document is the key of its first record.
    """
    named = {} if state is None else {key: state}
    return named | {_part_key(key, n): part for n, part in enumerate(parts)}


def parts_in(key: bytes, records: Mapping[bytes, bytes]) -> list[bytes]:
    """Returns the documents of the recorded writes of ``key``, in the order of
    ``CommitState.encode_parts``, which has made them. ``records`` has the values of the log's
    records, by record key.

    Raises the same errors as :func:`join`.
    """
    found: list[bytes] = []
    while (part := join(_part_key(key, len(found)), records)) is not None:
        found.append(part)
    return found


def changes(
    records: Mapping[bytes, bytes],
    documents: Mapping[bytes, bytes],
    revision: int,
    limit: int = PIECE_BYTES,
) -> dict[bytes, bytes | None]:
    """Returns the records that a write must produce, so that a key of the log then has exactly
    ``documents``. The result has the value of each record, by record key. None is a tombstone,
    which removes a record. A document that has not changed is left out.

    * ``records``: all records that the key has before the write.
    * ``documents``: the documents by name, from the function :func:`documents`.
    * ``revision``, ``limit``: arguments of :func:`cut`.
    """
    written: dict[bytes, bytes | None] = {}
    kept: set[bytes] = set()
    for name, document in documents.items():
        found, pieces = _read(name, records)
        if found == document:
            kept |= pieces
        else:
            written |= cut(name, document, revision, limit)
    return {**dict.fromkeys(sorted(records.keys() - written.keys() - kept)), **written}


def cut(
    name: bytes, document: bytes, revision: int, limit: int = PIECE_BYTES
) -> dict[bytes, bytes]:
    """Splits the document ``name`` into records. Each record has at most ``limit`` bytes of the
    document. Returns the records by record key. For example, the record keys for the document
    ``b"orders"`` are ``b"orders"``, ``b"orders#1"``, ``b"orders#2"`` and so on.

    ``revision`` is a number that must be different in each write of a key. It is stored in each
    record of a split document, so that :func:`join` recognizes a record that is left from another
    write.
    """
    # (If a small document begins with the bytes of a piece, it would be read as a piece.)
    if len(document) <= limit and not document.startswith(_PIECE):
        return {name: document}
    count = -(-len(document) // limit)
    found = {}
    for piece in range(count):
        line = json.dumps({"part": piece, "of": count, "revision": revision}, separators=(",", ":"))
        data = document[piece * limit : (piece + 1) * limit]
        found[_piece_key(name, piece)] = line.encode() + b"\n" + data
    return found


def join(name: bytes, records: Mapping[bytes, bytes]) -> bytes | None:
    """Joins the records into which :func:`cut` has split the document ``name``. Returns None if
    there is no record with the key ``name``.

    Raises CommitLogError if a record of a split document is missing, or is left from another write.
    """
    return _read(name, records)[0]


def _read(name: bytes, records: Mapping[bytes, bytes]) -> tuple[bytes | None, set[bytes]]:
    """Joins the records of the document ``name``. Returns the document, and the keys of all its
    records. If there is no such document, returns None and an empty set.
    """
    first = records.get(name)
    if first is None or not first.startswith(_PIECE):
        return first, set() if first is None else {name}
    revision, count = None, 1
    pieces: dict[bytes, bytes] = {}
    while len(pieces) < count:
        record_key = _piece_key(name, len(pieces))
        try:
            line, _, data = records[record_key].partition(b"\n")
            # Only the beginning is parsed, because a line of this package is short. Content of
            # another program may be nested more deeply than the parser allows.
            fields = json.loads(line[:_LONGEST_LINE])
            found = (int(fields["part"]), int(fields["of"]), int(fields["revision"]))
        except (KeyError, ValueError, TypeError, OverflowError):
            found, data = (-1, -1, -1), b""
        if revision is None:
            revision, count = found[2], found[1]
        if found != (len(pieces), count, revision) or count < 1:
            raise CommitLogError(
                f"the commit log's state of '{name.decode(errors='replace')}' is not whole: part "
                f"{len(pieces)} of {count} is missing",
                hint="no other client may write to the topic of commitLogTopic, and its "
                "cleanup.policy must be compact; 'kprod txn reset "
                f"{key_of(name).decode(errors='replace')} --force' forgets the key",
            )
        pieces[record_key] = data
    return b"".join(pieces.values()), set(pieces)


def _part_key(key: bytes, n: int) -> bytes:
    return key + b"#w%d" % n


def _piece_key(name: bytes, piece: int) -> bytes:
    return name if piece == 0 else name + b"#%d" % piece
