"""``kprod deadletters``: counts and shows the dead letters of a topic.

This module has the command and its tables. ``admin/committed_reader.py`` reads the topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import nlargest

from spark_kafka_sink.admin.committed_reader import CommittedReader
from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import connected
from spark_kafka_sink.cli.show import Json, print_json, say, show_rows
from spark_kafka_sink.records.letters.letter_fields import letter_fields

#: Characters of a cell.
_MOST_SHOWN = 200


def deadletters(where: Where, topic: str, last: int, *, values: bool, as_json: bool) -> None:
    """Counts dead letters by reason, and shows a table of the newest. ``last`` is the number of
    dead letters in the table. With ``values``, the table also has their keys and values.
    """
    counts: Counter[tuple[object, object]] = Counter()

    def letters(reader: CommittedReader) -> Iterator[tuple[int, int, int, Json]]:
        """Yields the dead letters of the topic, and adds each dead letter to ``counts``. A dead
        letter is yielded as a tuple that can be sorted: a time, the offset, the partition, and the
        fields.

        The time is the greatest timestamp among the partition's dead letters up to this offset.
        """
        for tp, end in reader.partitions():
            partition, time = tp.partition, -1
            for record in reader.read(tp, end):
                letter: Json = {"partition": partition, "offset": record.offset}
                letter |= letter_fields(record.headers)
                counts[letter["code"] or "", letter["reason"] or ""] += 1
                if values:
                    letter |= {"key": _text(record.key), "value": _text(record.value)}
                # (A dead letter has the timestamp of its row, which may be old.)
                time = max(time, record.timestamp)
                yield time, record.offset, partition, letter

    with connected(where, as_json=as_json) as to:
        reader = CommittedReader(to.client, topic)
        newest = nlargest(last or 1, letters(reader))[:last]  # (of none it would read none)
    shown = [letter for *_, letter in reversed(newest)]
    by_reason: list[Json] = [
        {"code": code, "reason": reason, "letters": count}
        for (code, reason), count in counts.most_common()
    ]
    if as_json:
        print_json({"command": "deadletters", "topic": topic, "total": counts.total(),
                    "byReason": by_reason, "last": shown, "leftOut": reader.left_out})  # fmt: skip
        return
    _show(f"Dead letters in {topic}", ("code", "reason", "letters"), by_reason)
    if reader.left_out:
        say(f"{reader.left_out} more are in transactions that have not ended: not counted.")
    if shown:
        _show("The newest", [name for name in shown[0] if name != "reason"], shown)


def _show(title: str, names: Sequence[str], rows: Sequence[Json]) -> None:
    cells = [["" if row[name] is None else str(row[name]) for name in names] for row in rows]
    show_rows(title, names, [[safe_text(cell, _MOST_SHOWN) for cell in row] for row in cells])


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
