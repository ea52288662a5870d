"""Options of the sink that contradict each other: a row for each combination.

Owns: :class:`Check` and the rows. Never: the rule of one option (``option_table``), the producer's
options (``cross_checks``), a schema's (``schemas/schema_options``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.named_columns import (
    ALL_COLUMNS,
    ColumnFormat,
    column_names,
    struct_name,
)

Values = Mapping[str, Any]

_NAME: Final = re.compile(r"\{(\w+)\}")
_EXACTLY_ONCE: Final = "exactly-once"


@dataclass(frozen=True, slots=True)
class Check:
    """An error when all options of ``given`` were given, none of ``unless`` was, and ``broken`` is
    true of the effective values. Both texts may hold values, as ``{option}``.
    """

    given: str
    sentence: str
    hint: str
    broken: Callable[[Values], bool] = bool
    unless: str = ""
    kind: Kind | None = None


def _needs_exactly_once(name: str) -> Check:
    return Check(
        name,
        f"{name} needs deliveryGuarantee=exactly-once, and deliveryGuarantee is"
        " {deliveryGuarantee}",
        "set deliveryGuarantee=exactly-once, or remove that option",
        lambda values: values["deliveryGuarantee"] != _EXACTLY_ONCE,
    )


def _format_of_none(part: str) -> Check:
    return Check(
        f"{part}Format",
        f"{part}Format would have no effect, because {part}Columns names no column",
        f"set {part}Columns, or remove {part}Format",
        unless=f"{part}Columns",
        kind=Kind.NO_EFFECT,
    )


def _string_of_one(part: str) -> Check:
    def broken(values: Values) -> bool:
        text = values[f"{part}Columns"]
        if values[f"{part}Format"] is not ColumnFormat.STRING or struct_name(text or ""):
            return False
        names = column_names(text)
        return len(names) > 1 or ALL_COLUMNS in names

    return Check(
        "",
        f"{part}Format=string takes one column, and {part}Columns names more",
        f"name one column, or set {part}Format=json",
        broken,
    )


def _one_topic(one: str, other: str, hint: str) -> Check:
    return Check(
        one,
        f"{one} and {other} are the same topic, '{{{one}}}'",
        hint,
        lambda values: values[one] == values[other],
    )


_REPORTS = "reports are records of JSON: use a separate topic for them"
_PROGRESS = "progress is records of JSON: use a separate topic for it"
_OF_BOTH = "txnAppId identifies the writer, txnVersion counts its writes"

#: In the order in which they are looked at.
CHECKS: Final = (
    *map(
        _needs_exactly_once,
        (
            "transactionalIdPrefix",
            "txnAppId",
            "txnVersion",
            "verifyReplays",
            "offsetsGroup",
            "offsetsGroupInUse",
            "twoPhaseCommit",
            "commitLogTopic",
        ),
    ),
    Check("txnAppId", "txnAppId is set and txnVersion is not: a write is known by both", _OF_BOTH,
          unless="txnVersion"),
    Check("txnVersion", "txnVersion is set and txnAppId is not: a write is known by both", _OF_BOTH,
          unless="txnAppId"),
    Check("topic", "topic and commitLogTopic are the same topic, '{topic}'",
          "the commit log holds the driver's decisions, and no other client may write to it",
          lambda values: values["deliveryGuarantee"] == _EXACTLY_ONCE
          and values["topic"] == values["commitLogTopic"]),
    _one_topic("reportTopic", "topic", _REPORTS),
    _one_topic("reportTopic", "commitLogTopic", _REPORTS),
    _one_topic("progressTopic", "topic", _PROGRESS),
    _one_topic("progressTopic", "commitLogTopic", _PROGRESS),
    _one_topic("progressTopic", "reportTopic", _PROGRESS),
    _format_of_none("key"),
    _string_of_one("key"),
    _format_of_none("value"),
    _string_of_one("value"),
    Check("onNullValue valueColumns",
          "onNullValue would have no effect, because valueColumns become JSON, which is never null",
          "remove onNullValue, or write a column value that is null where it must be",
          lambda values: values["valueFormat"] is ColumnFormat.JSON
          and struct_name(values["valueColumns"]) is None,
          kind=Kind.NO_EFFECT),
    Check("tasksAtOnce", "tasksAtOnce would have no effect, because there is no rate to divide",
          "set maxRecordsPerSecond or maxBytesPerSecond, or remove tasksAtOnce",
          unless="maxRecordsPerSecond maxBytesPerSecond", kind=Kind.NO_EFFECT),
)  # fmt: skip


def check_sink(given: Container[str], values: Values) -> None:
    """ConfigError for the first row that the options break. ``values`` are the effective ones."""
    for check in CHECKS:
        applies = all(name in given for name in check.given.split())
        excepted = any(name in given for name in check.unless.split())
        if applies and not excepted and check.broken(values):
            sentence = _NAME.sub(lambda found: str(values[found[1]]), check.sentence)
            raise ConfigError(sentence, hint=check.hint, kind=check.kind)
