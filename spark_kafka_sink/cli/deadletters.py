"""``kprod deadletters``: what is in a topic of dead letters.

Owns: the command and its tables. Never: the reading (``datasource/dead_letters/letter_reader.py``).
"""

from __future__ import annotations

from collections import Counter, deque

from rich.markup import escape
from rich.table import Table

from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import connected
from spark_kafka_sink.cli.show import Json, new_console, print_json
from spark_kafka_sink.datasource.dead_letters.letter_reader import letter_ranges, read_letters
from spark_kafka_sink.records.letters.letter_fields import LetterFields
from spark_kafka_sink.records.letters.read_records import ReadRecord

#: Characters of a cell.
_MOST_SHOWN = 200
#: Partition, record, and what it says.
_Letter = tuple[int, ReadRecord, LetterFields]


def deadletters(where: Where, topic: str, last: int, *, values: bool, as_json: bool) -> None:
    """Counts by reason, and the ``last`` letters, with ``values`` also key and value."""
    counts: Counter[tuple[str, str]] = Counter()
    newest: list[_Letter] = []
    with connected(where, as_json=as_json) as to:
        for found in letter_ranges(to.client, topic):
            of_partition: deque[_Letter] = deque(maxlen=last)
            for record in read_letters(to.client, found):
                fields = LetterFields.of(record.headers)
                counts[fields.code or "", fields.reason or ""] += 1
                of_partition.append((found.tp.partition, record, fields))
            newest += of_partition
    newest.sort(key=lambda one: one[1].timestamp)
    newest = newest[len(newest) - last :] if last < len(newest) else newest
    if as_json:
        print_json(_json(topic, counts, newest, values=values))
        return
    console = new_console(markup=True)
    table = Table("code", "reason", "letters")
    for of, count in counts.most_common():
        table.add_row(*map(_cell, of), str(count))
    console.print(table)
    if newest:
        console.print(_table(newest, values=values))


def _table(letters: list[_Letter], *, values: bool) -> Table:
    table = Table("partition", "offset", "code", "topic", "batch", "row", "message")
    for name in ("key", "value") if values else ():
        table.add_column(name)
    for partition, record, fields in letters:
        cells = [partition, record.offset, fields.code, fields.topic, fields.batch, fields.row]
        cells.append(fields.message)
        if values:
            cells += [_text(record.key), _text(record.value)]
        table.add_row(*map(_cell, cells))
    return table


def _cell(value: object) -> str:
    """Without what a terminal or the table's markup would obey: any client may write there."""
    return "" if value is None else escape(safe_text(str(value), _MOST_SHOWN))


def _json(
    topic: str, counts: Counter[tuple[str, str]], letters: list[_Letter], *, values: bool
) -> Json:
    def of(partition: int, record: ReadRecord, fields: LetterFields) -> Json:
        names = ("code", "reason", "topic", "batch", "row", "message")
        found: Json = {"partition": partition, "offset": record.offset}
        found |= {name: getattr(fields, name) for name in names}
        return found | ({"key": _text(record.key), "value": _text(record.value)} if values else {})

    by_reason = [
        {"code": code, "reason": reason, "letters": count}
        for (code, reason), count in counts.most_common()
    ]
    return {
        "command": "deadletters",
        "topic": topic,
        "total": counts.total(),
        "byReason": by_reason,
        "last": [of(*one) for one in letters],
    }


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
