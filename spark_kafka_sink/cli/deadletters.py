"""``kprod deadletters``: what is in a topic of dead letters.

Owns: the command and its tables. Never: the reading (``datasource/dead_letters/letter_reader.py``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import connected
from spark_kafka_sink.cli.show import Json, print_json, show_rows
from spark_kafka_sink.datasource.dead_letters.letter_reader import LetterReader
from spark_kafka_sink.records.letters.letter_fields import letter_fields
from spark_kafka_sink.records.log_records import LogRecord

#: Characters of a cell.
_MOST_SHOWN = 200


def deadletters(where: Where, topic: str, last: int, *, values: bool, as_json: bool) -> None:
    """Counts by reason, and the ``last`` letters, with ``values`` also key and value."""
    counts: Counter[tuple[object, object]] = Counter()
    newest: list[tuple[int, LogRecord]] = []
    with connected(where, as_json=as_json) as to:
        reader = LetterReader(to.client, topic)
        for found in reader.partitions():
            of_partition: deque[tuple[int, LogRecord]] = deque(maxlen=last)
            for record in reader.read(found):
                fields = letter_fields(record.headers)
                counts[fields["code"] or "", fields["reason"] or ""] += 1
                of_partition.append((found.tp.partition, record))
            newest += of_partition
    newest.sort(key=lambda one: one[1].timestamp)
    shown = [_fields(*one, values=values) for one in newest[max(len(newest) - last, 0) :]]
    names = ("code", "reason", "letters")
    by_reason: list[Json] = [
        dict(zip(names, (*of, count), strict=True)) for of, count in counts.most_common()
    ]
    if as_json:
        print_json({"command": "deadletters", "topic": topic, "total": counts.total(),
                    "byReason": by_reason, "last": shown})  # fmt: skip
        return
    _show(f"Dead letters in {topic}", by_reason, names)
    if shown:
        _show("The newest", shown, [name for name in shown[0] if name != "reason"])


def _fields(partition: int, record: LogRecord, *, values: bool) -> Json:
    found: Json = {"partition": partition, "offset": record.offset}
    found |= letter_fields(record.headers)
    return found | ({"key": _text(record.key), "value": _text(record.value)} if values else {})


def _show(title: str, rows: Sequence[Json], names: Sequence[str]) -> None:
    show_rows(title, names, [[_cell(row[name]) for name in names] for row in rows])


def _cell(value: object) -> str:
    return "" if value is None else safe_text(str(value), _MOST_SHOWN)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
