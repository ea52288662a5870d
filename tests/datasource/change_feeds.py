"""Change feeds that are made up: a table that is changed at random, and what each feed has of it.

``changes_of`` lists the changes of a table in order; ``delta_rows``, ``flink_rows`` and
``debezium_rows`` are these in the form of a feed. ``compacted`` is what the reader of a compacted
topic has in the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """A change in ``version`` of the table: the row before (None: an insert), and after (None: a
    delete).
    """

    version: int
    before: Row | None
    after: Row | None


def changes_of(random: Random, count: int, keys: int) -> tuple[list[Change], dict[int, Row]]:
    """``count`` versions with up to three changes each of other keys, and the table after them.
    An update of the key is one in ten.
    """
    table: dict[int, Row] = {}
    changes = []
    for version in range(1, count + 1):
        touched: set[int] = set()
        for _ in range(random.randint(1, 3)):
            key = random.randrange(keys)
            if key in touched:
                continue
            touched.add(key)
            before = table.get(key)
            if before is not None and random.random() < 0.3:
                changes.append(Change(version, table.pop(key), None))
                continue
            after = {"id": key, "text": f"{version}.{random.randrange(99)}"}
            other = random.randrange(keys)
            if before is not None and random.random() < 0.1 and other not in {*table, *touched}:
                touched.add(other)
                del table[key]
                after["id"] = other
            table[after["id"]] = after
            changes.append(Change(version, before, after))
    return changes, table


_DELTA = ("insert", "update_preimage", "update_postimage", "delete")
_FLINK = ("+I", "-U", "+U", "-D")


def delta_rows(changes: Iterable[Change]) -> list[Row]:
    """Rows of Delta's change data feed."""
    return [
        row | {"_change_type": type_, "_commit_version": version}
        for version, type_, row in _rows(changes, _DELTA)
    ]


def flink_rows(changes: Iterable[Change]) -> list[Row]:
    """Rows with Flink's row kinds, and a column ``seq`` in their order."""
    return [
        row | {"rowkind": kind, "seq": version} for version, kind, row in _rows(changes, _FLINK)
    ]


def debezium_rows(changes: Iterable[Change]) -> list[Row]:
    """Envelopes with a source of PostgreSQL."""
    return [
        {
            "op": "c" if one.before is None else "d" if one.after is None else "u",
            "before": one.before,
            "after": one.after,
            "source": {"lsn": 1000 + number},
            "ts_ms": 1_700_000_000_000 + number,
        }
        for number, one in enumerate(changes)
    ]


def _rows(
    changes: Iterable[Change], types: tuple[str, str, str, str]
) -> Iterator[tuple[int, str, Row]]:
    insert, before, after, delete = types
    for one in changes:
        if one.before is None and one.after is not None:
            yield one.version, insert, one.after
        elif one.after is None and one.before is not None:
            yield one.version, delete, one.before
        elif one.before is not None and one.after is not None:
            yield one.version, before, one.before
            yield one.version, after, one.after


def compacted(records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """The last value of each key, without those that are deleted."""
    found: dict[bytes, bytes] = {}
    for key, value in records:
        assert key is not None, "a record without a key"
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def as_json(table: Iterable[Row]) -> dict[bytes, bytes]:
    """Rows as the sink writes them with keyColumns=id, keyFormat=string, valueColumns=*."""
    return {
        str(row["id"]).encode(): json.dumps(row, separators=(",", ":")).encode() for row in table
    }
