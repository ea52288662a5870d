"""What a backfill reads of a table by its name: one version, or the files that were planned. The
session is a stand-in, which has Delta's and Iceberg's answers; test_backfill_of_delta.py has Delta.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.types import LongType, StructField, StructType

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.jobs.backfill_source import BackfillSource, files_of

HISTORY = "DESCRIBE HISTORY shop.orders LIMIT 1"
DETAIL = "DESCRIBE DETAIL shop.orders"
REFS = "SELECT * FROM shop.orders.refs WHERE name = 'main'"

#: The row that answers a query; None if it has no rows.
Answers = dict[str, dict[str, object] | None]


class Frame:
    """Rows that were asked for by ``text``."""

    schema = StructType([StructField("id", LongType())])

    def __init__(self, text: str, *rows: dict[str, object], files: list[str] | None = None) -> None:
        self.text = text
        self.rows = list(rows)
        self.files = [] if files is None else files

    def collect(self) -> list[dict[str, object]]:
        return self.rows

    def select(self, *_: str) -> Frame:
        return self

    def inputFiles(self) -> list[str]:
        return list(self.files)


class Session:
    """Answers the queries of ``answers``, and refuses others, as Spark does for another format."""

    conf = SimpleNamespace(get=lambda name: {"spark.sql.session.timeZone": "UTC"}[name])

    def __init__(self, answers: Answers | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[str] = []
        self.refusal: Exception = AnalysisException("another format")
        self.files = ["a.parquet", "b.parquet"]

    def sql(self, query: str) -> Frame:
        self.asked.append(query)
        if "VERSION AS OF" in query:
            return Frame(query)
        if query not in self.answers:
            raise self.refusal
        answer = self.answers[query]
        return Frame(query, *([] if answer is None else [answer]))

    def table(self, name: str) -> Frame:
        return Frame(f"table {name}", files=self.files)


def source_of(session: Session, given: Any = "shop.orders", **more: Any) -> BackfillSource:
    return BackfillSource(session, given, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "pin"),
    [
        ({HISTORY: {"version": 7}}, "delta 7"),
        ({REFS: {"snapshot_id": 4711}}, "iceberg 4711"),
        ({HISTORY: None, REFS: None}, ""),
        ({}, ""),
    ],
    ids=["delta", "iceberg", "without a snapshot", "parquet"],
)
def test_a_table_by_name_has_the_pin_of_its_format(answers: Answers, pin: str) -> None:
    assert source_of(Session(answers)).pin() == pin


@pytest.mark.parametrize("is_format", [True, False])
def test_a_snapshot_that_cannot_be_read_is_a_warning(
    caplog: pytest.LogCaptureFixture, is_format: bool
) -> None:
    """The table may be Iceberg's, whose list of files Spark does not show."""
    session = Session()
    if not is_format:
        session.refusal = RuntimeError("the catalog does not answer")
    assert source_of(session).pin() == ""
    assert len(caplog.messages) == (0 if is_format else 2)
    assert all("the catalog does not answer" in message for message in caplog.messages)


def test_each_step_reads_the_version_of_the_pin() -> None:
    made: list[object] = []

    def transform(table: Frame) -> Frame:
        made.append(table.text)
        return Frame(f"of {table.text}")

    source = source_of(Session(), transform=transform)
    first = source.rows("delta 7")
    assert source.rows("delta 7") is first
    assert made == ["SELECT * FROM shop.orders VERSION AS OF 7"]
    plain = source_of(Session()).rows("iceberg 4711")
    assert plain.text == "SELECT * FROM shop.orders VERSION AS OF 4711"  # type: ignore[attr-defined]


def test_a_pin_that_is_no_number_is_never_a_query() -> None:
    """The pin is read from the commit log, which others may write."""
    session = Session()
    with pytest.raises(ValueError, match="invalid literal"):
        source_of(session).rows("delta 7; DROP TABLE shop.orders")
    assert not session.asked


def test_a_table_that_was_dropped_and_made_again_is_another() -> None:
    facts = [
        source_of(Session({DETAIL: {"id": name}})).facts("delta 0") for name in ("first", "second")
    ]
    differ = {name for name in facts[0] if facts[0][name] != facts[1][name]}
    assert differ == {"table's id"}
    assert facts[0]["table"] == "shop.orders"
    assert facts[0]["session's time zone"] == "UTC"
    assert "source's files" not in facts[0], "the version has its files"


def test_other_files_than_the_planned_ones_stop_the_backfill() -> None:
    session = Session()
    source = source_of(session)
    planned = source.facts("")["source's files"]
    assert planned.startswith("2 files")
    source.check("", planned)
    session.files.append("c.parquet")
    with pytest.raises(ConfigError, match=r"2 files .* when it was planned, and 3 files") as raised:
        source.check("", planned)
    assert raised.value.kind is Kind.BACKFILL_PLAN
    source.check("", None)
    source.check("delta 7", planned)


def test_files_are_the_same_in_any_order() -> None:
    def frame(*files: str) -> Any:
        return Frame("", files=list(files))

    assert files_of(frame("a", "b")) == files_of(frame("b", "a")) != files_of(frame("a", "c"))


def test_a_dataframe_is_read_as_it_is() -> None:
    frame: Any = Frame("mine")
    source = source_of(Session(), frame)
    assert source.pin() == ""
    assert source.rows("") is frame
    assert "table" not in source.facts("")
