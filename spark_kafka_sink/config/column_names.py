"""A list of columns in an option's text, as SQL writes one: ``id, name, `a,b```.

Owns: the reading of such a list and the rule that it is one. Never: which columns there are
(``datasource/write/named_columns.py``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_kafka_sink.config.option import OptionValue

#: All columns of the DataFrame.
ALL_COLUMNS = "*"

#: A name in backticks, in which two stand for one, or anything up to the next comma.
_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`,]*?))\s*(,|$)", re.DOTALL)


def column_names(text: str) -> tuple[str, ...]:
    """The names in ``text``, in order. Raises ValueError with the reason."""
    names: list[str] = []
    at, more = 0, True
    while more:
        found = _NAME.match(text, at)
        if found is None:
            raise ValueError("A name in backticks must end in one, and a comma follows it")
        quoted, plain, comma = found.groups()
        name = plain if quoted is None else quoted.replace("``", "`")
        if not name:
            raise ValueError("A name of a column is missing")
        names.append(name)
        at, more = found.end(), bool(comma)
    twice = next((n for i, n in enumerate(names) if n.lower() in map(str.lower, names[:i])), None)
    if twice is not None:
        raise ValueError(f"Column {twice} is named twice")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The rule of an option that lists columns; ``all_too``: or all of them, as ``*``."""

    all_too: bool = False

    def broken(self, value: OptionValue) -> str | None:
        try:
            names = column_names(value if isinstance(value, str) else "")
        except ValueError as error:
            return str(error)
        if ALL_COLUMNS in names and (not self.all_too or len(names) > 1):
            return (
                "* can't be combined with names"
                if self.all_too
                else "* is not the name of a column"
            )
        return None

    def describe(self) -> str:
        star = ", or `*`" if self.all_too else ""
        return f"names of columns with commas between them, in backticks where they hold one{star}"
