"""The rows of a step: each row of the source is at one position of the plan, whatever it holds."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.datasource.jobs.backfill_rows import check_hash, ranges_of, rows_between
from spark_kafka_sink.datasource.jobs.backfill_source import FILES, BackfillSource

NAN, INFINITY = float("nan"), float("inf")
#: A column, its type, values with their repetitions, and values that come after the plan.
COLUMNS = {
    "int": ("int", [None, -5, 0, 3, 3, 3, 2**31 - 1], [-(2**31), 1, 2]),
    "double": ("double", [None, NAN, NAN, -INFINITY, -0.0, 0.0, 1.5, 0.1 + 0.2], [INFINITY, 7.0]),
    "decimal": ("decimal(10,2)", [Decimal("1.10"), Decimal("-3.00"), None], [Decimal("1.11")]),
    "date": ("date", [date(26, 1, 1), date(1, 1, 1), date(9999, 12, 31), None], [date(26, 5, 5)]),
    "string": ("string", ["", "a", "b'\\\"", "ä", "\U0001f600", None, "a"], ["`", "zz"]),
    "boolean": ("boolean", [True, False, None, True], [True]),
    "only nulls": ("int", [None, None], [1, -1]),
    "one value": ("string", ["x"] * 5, ["w", "y", None]),
    "empty": ("int", [], [None, 1]),
}  # fmt: skip


def plan_of(frame, by, slices=4):
    ranges = ranges_of(frame, by)
    return BackfillPlan(slices, by, ranges.type_name, ranges.bounds, ranges.rows)


def at(frame, plan, first, end):
    return rows_between(
        frame, first, end, slices=plan.slices, by=plan.by, type_name=plan.by_type,
        bounds=plan.bounds,
    )  # fmt: skip


def ids(frame):
    return [row.id for row in frame.select("id").collect()]


def assert_each_row_once(frame, plan, steps):
    found = Counter(n for first, end in steps for n in ids(at(frame, plan, first, end)))
    assert found == Counter(ids(frame))


@pytest.mark.parametrize("name", COLUMNS)
def test_each_row_is_in_one_step(spark, name):
    """Also a row that was not there when the plan was made."""
    type_name, values, later = COLUMNS[name]
    column = f"`{name} x`" if name != "int" else "int"
    plan = plan_of(frame_of(spark, column, type_name, values), column.strip("`"))
    whole = frame_of(spark, column, type_name, values + later)
    assert_each_row_once(whole, plan, [(0, plan.end)])
    ranges = [(first, first + plan.slices) for first in range(0, plan.end, plan.slices)]
    assert_each_row_once(whole, plan, ranges)
    slices = [(first, first + 2) for first in range(0, min(plan.end, 3 * plan.slices), 2)]
    assert_each_row_once(whole, plan, [*slices, *ranges[3:]])
    if len(values) > 1:
        counted = [len(ids(at(frame_of(spark, column, type_name, values), plan, *one)))
                   for one in ranges]  # fmt: skip
        assert tuple(counted) == plan.rows


def frame_of(spark, column, type_name, values):
    rows = [(n, value) for n, value in enumerate(values)]
    return spark.createDataFrame(rows, f"id int, {column} {type_name}")


#: Values that Python does not have, as SQL, in their order.
RARE = {
    "bytes that are no text": ["CAST(X'61' AS STRING)", "CAST(X'FFFE' AS STRING)",
                               "CAST(X'F09F9880' AS STRING)", "CAST(X'EFBFBF' AS STRING)",
                               "CAST(X'FF' AS STRING)", "NULL"],
    "bytes that are no text, alone": ["CAST(X'FF' AS STRING)", "CAST(X'FE' AS STRING)", "NULL"],
    "without case": [f"CAST({one} AS STRING) COLLATE UTF8_LCASE"
                     for one in ("'a'", "'B'", "'b'", "'C'", "NULL", "'A'")],
    "late dates": ["make_date(12000, 1, 1)", "make_date(-10, 5, 5)", "make_date(2026, 1, 1)"],
    "late timestamps": ["make_timestamp_ntz(12000, 1, 1, 0, 0, 0.000001)", "NULL",
                        "make_timestamp_ntz(-5, 1, 1, 0, 0, 0)", "TIMESTAMP_NTZ'2026-01-01'"],
    "float": ["CAST(0.1 AS FLOAT)", "CAST('NaN' AS FLOAT)", "CAST(1e38 AS FLOAT)",
              "CAST(16777217 AS FLOAT)", "NULL", "CAST('-Infinity' AS FLOAT)"],
    "with spaces": ["CAST('a  ' AS CHAR(3))", "'a'", "' a'", "'a '"],
}  # fmt: skip


@pytest.mark.parametrize("name", RARE)
def test_each_row_of_rare_values_is_in_one_step(spark, name):
    """A bound is recorded as text, which must be in the order of the values."""
    frame = spark.sql(
        " UNION ALL ".join(f"SELECT {n} AS id, {value} AS x" for n, value in enumerate(RARE[name]))
    )
    plan = plan_of(frame, "x")
    ranges = [(first, first + plan.slices) for first in range(0, plan.end, plan.slices)]
    assert_each_row_once(frame, plan, ranges)
    counted = [len(ids(at(frame, plan, *one))) for one in ranges]
    assert tuple(counted) == plan.rows


def test_a_timestamp_is_the_same_in_each_time_zone(spark):
    """A bound of one session, in the hour that its clock shows twice, cuts alike in another's."""
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    micros = [1_793_000_000_000_000 + n * 1_800_000_000 + 1 for n in range(48)]
    frame = spark.createDataFrame([(n, m) for n, m in enumerate(micros)], "id int, m long")
    frame = frame.selectExpr("id", "timestamp_micros(m) AS at", "cast(timestamp_micros(m) AS "
                             "timestamp_ntz) AS local")  # fmt: skip
    try:
        spark.conf.set(zone, "America/New_York")
        plan = plan_of(frame, "at")
        spark.conf.set(zone, "Asia/Tokyo")
        for n in (0, 7, 47):
            found = ids(at(frame, plan, n * plan.slices, (n + 1) * plan.slices))
            assert found == [n]
    finally:
        spark.conf.set(zone, before)
    assert plan.bounds[0] == str(micros[1])
    local = plan_of(frame, "local")
    assert ids(at(frame, local, 5 * local.slices, 6 * local.slices)) == [5]


def test_many_values_are_cut_into_ranges_of_about_as_many_rows(spark):
    frame = spark.range(0, 30_000, 1, 2).selectExpr(
        "id", "IF(id % 3 = 0, NULL, CAST(id AS STRING)) AS name"
    )
    ranges = ranges_of(frame, "name")
    assert sum(ranges.rows) == 30_000
    assert 100 < len(ranges.bounds) < 1_100
    assert list(ranges.bounds) == sorted(ranges.bounds)
    assert max(ranges.rows[1:]) < 1_000
    plan = BackfillPlan(4, "name", ranges.type_name, ranges.bounds, ranges.rows)
    half = len(ranges.rows) // 2 * 4
    first, second = (at(frame, plan, *one).count() for one in ((0, half), (half, plan.end)))
    assert (first, second) == (sum(ranges.rows[: half // 4]), sum(ranges.rows[half // 4 :]))


def test_slices_of_a_hash_have_each_row_once(spark):
    """Maps and variants are left out of the hash: Spark hashes neither."""
    frame = spark.range(1000).selectExpr(
        "id", "map('a', id) AS m", "array(named_struct('v', map(id, 1))) AS deep",
        "CAST(id AS STRING) AS name",
    )  # fmt: skip
    check_hash(frame)
    plan = BackfillPlan(64)
    assert_each_row_once(frame, plan, [(0, 1), (1, 30), (30, 64)])
    with pytest.raises(ConfigError, match="none of the columns can be hashed"):
        check_hash(frame.select("m", "deep"))


@pytest.mark.parametrize(
    "column",
    ["current_timestamp()", "now()", "localtimestamp()", "current_date()", "rand()", "uuid()",
     "monotonically_increasing_id()", "spark_partition_id()", "concat('a', randstr(3))"],
)  # fmt: skip
def test_no_slices_of_a_hash_that_changes_from_query_to_query(spark, column):
    """With current_timestamp(), a third of the rows was in no step."""
    frame = spark.range(100).selectExpr("id", f"{column} AS x", "id % 2 AS day")
    with pytest.raises(ConfigError, match="would change from step to step") as raised:
        at(frame, BackfillPlan(64), 0, 1)
    assert column.removeprefix("concat('a', ").partition("(")[0] in raised.value.message
    plan = plan_of(frame, "day")
    with pytest.raises(ConfigError, match="would change from step to step"):
        at(frame, plan, 0, 1)
    assert_each_row_once(frame, plan, [(0, plan.slices), (plan.slices, plan.end)])


def test_a_stored_column_and_a_text_like_a_function_have_slices(spark, tmp_path):
    """As the hint says: the column is stored in a table first."""
    frame = spark.range(100).selectExpr("id", "now() AS `now()`", "'rand()' AS x", "'Now' AS Uuid")
    with pytest.raises(ConfigError) as raised:
        at(frame, BackfillPlan(64), 0, 1)
    assert "store the rows in a table first, or make the DataFrame without" in raised.value.hint
    frame.write.parquet(str(tmp_path / "t"))
    stored = spark.read.parquet(str(tmp_path / "t"))
    assert_each_row_once(stored, BackfillPlan(64), [(0, 30), (30, 64)])
    without = spark.range(100).selectExpr("id", "'rand()' AS x", "'Now' AS Uuid")
    assert_each_row_once(without, BackfillPlan(64), [(0, 30), (30, 64)])


def test_a_step_of_a_partition_column_reads_its_partitions(spark, tmp_path):
    where = str(tmp_path / "t")
    spark.range(100).selectExpr("id", "id % 10 AS day").write.partitionBy("day").parquet(where)
    frame = spark.read.parquet(where)
    plan = plan_of(frame, "day")
    assert len(plan.bounds) == 9
    for file in (tmp_path / "t").glob("day=*/*.parquet"):
        if file.parent.name != "day=4":
            file.write_bytes(b"whoever reads it fails")
    assert len(ids(at(frame, plan, 4 * plan.slices, 5 * plan.slices))) == 10
    with pytest.raises(Exception, match="parquet"):
        ids(at(frame, plan, 5 * plan.slices, 6 * plan.slices))


def test_a_source_of_the_files_that_were_planned_goes_on(spark, tmp_path):
    """And one with another file does not."""
    where = str(tmp_path / "t")
    spark.range(0, 10, 1, 2).write.parquet(where)
    planned = BackfillSource(spark, spark.read.parquet(where)).facts("")[FILES]
    files = spark.read.parquet(where).inputFiles()
    spark.range(3).write.mode("append").parquet(where)
    with pytest.raises(ConfigError, match="has changed: 2 files") as raised:
        BackfillSource(spark, spark.read.parquet(where)).check("", planned)
    assert "give a source of the files that were planned" in raised.value.hint
    BackfillSource(spark, spark.read.parquet(*files)).check("", planned)


@pytest.mark.parametrize("by", ["missing", "list", "ID"])
def test_a_column_without_an_order_is_refused(spark, by):
    frame = spark.range(3).selectExpr("id", "array(id) AS list")
    with pytest.raises(ConfigError, match=f"by='{by}'"):
        ranges_of(frame, by)
