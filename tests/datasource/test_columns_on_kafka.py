"""Named columns from Spark into a real Kafka, and their JSON beside Spark's own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import functions as f

PAGE = (Path(__file__).parents[2] / "docs" / "columns.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


#: Every type that has JSON, with its odd values; ``n`` numbers the rows.
ROWS = r"""
SELECT * FROM VALUES
 (0, 'a"\\/ä😀', 1.5D, FLOAT(0.1), 10.50BD, CAST(0 AS DECIMAL(38, 18)), DATE'2020-02-29',
  TIMESTAMP'2020-07-01 12:00:00.123456', TIMESTAMP_NTZ'2020-01-01 00:00:00', X'00FF10', true),
 (1, '', 1e7D, FLOAT(1e10), -0.01BD, CAST('0.0000001' AS DECIMAL(38, 18)), DATE'0001-01-01',
  TIMESTAMP'1970-01-01 00:00:00', TIMESTAMP_NTZ'1969-12-31 23:59:59.999999', X'', false),
 (2, char(10) || char(1) || char(31) || char(9) || char(127), DOUBLE('NaN'), FLOAT('-Infinity'),
  99999999.99BD, CAST(-12.5 AS DECIMAL(38, 18)), make_date(10000, 1, 1),
  TIMESTAMP'1883-11-18 00:00:00', TIMESTAMP_NTZ'9999-12-31 23:59:59.9', X'616263', NULL),
 (3, NULL, -0.0D, FLOAT(123456.7), NULL, NULL, make_date(-1, 12, 31),
  TIMESTAMP'+12020-01-01 00:00:00', NULL, NULL, NULL),
 (4, CAST(X'FF61EDA080C328' AS STRING), 1e-4D, NULL, 0BD, 1BD, NULL, NULL,
  TIMESTAMP_NTZ'0001-01-01 00:00:00', X'FBEFFF', true),
 (5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
 AS t(n, text, double, float, dec, small, day, ts, ntz, bytes, flag)
"""
NESTED = (
    "array(text, NULL, 'x') AS texts",
    "IF(n = 1, NULL, array(ts, NULL)) AS times",
    "map('k', double, 'l', NULL) AS map",
    "map(n, dec, n + 10, dec) AS numbers",
    "IF(n = 2, NULL, named_struct('a b', text, 'in', named_struct('x', bytes, 'y', day))) AS st",
    "transform(sequence(0, n), i -> named_struct('i', IF(i % 2 = 0, i, NULL), 'f', flag)) AS many",
    "array() AS none",
    "CAST(NULL AS VOID) AS void",
    "map(coalesce(day, DATE'1970-01-01'), n) AS days",
    "map(coalesce(double, 2.5D), ts) AS doubles",
    "INTERVAL '1 02:03:04.5' DAY TO SECOND * n AS interval",
    "map('k', array(INTERVAL '5' HOUR * n)) AS hours",
    "IF(n = 1, NULL, to_variant_object(named_struct('b', dec, 'a', array(double)))) AS variant",
)


def test_json_is_what_sparks_to_json_writes(spark, kafka, write, consume):
    """Other time zones: tests/records/test_records_json_text.py."""
    before = spark.conf.get("spark.sql.session.timeZone")
    topic = kafka.unique_topic("to-json", partitions=1)
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.sql(ROWS).selectExpr("*", *NESTED).coalesce(1)
        wanted = [
            row.json
            for row in frame.orderBy("n").select(f.to_json(f.struct("*")).alias("json")).collect()
        ]
        write(frame, topic, valueColumns="*", keyColumns="n", keyFormat="string")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    found = consume(topic)
    told = dict(zip(found.keys, found.values, strict=True))
    assert [told[str(n).encode()].decode() for n in range(6)] == wanted


def run_example(code, spark, kafka, topics, **names):
    for name in re.findall(r'"topic", "(\w+)"', code):
        topics[name] = kafka.unique_topic(name, partitions=1)
        code = code.replace(f'"topic", "{name}"', f'"topic", "{topics[name]}"')
    variables = {"spark": spark, "servers": kafka.bootstrap, **names}
    exec(compile(code, "docs/columns.md", "exec"), variables)
    return variables


def test_the_pages_batch_example_writes_the_pages_table(spark, kafka, consume):
    topics = {}
    run_example(EXAMPLES[0], spark, kafka, topics)
    found = consume(topics["orders"])
    rows = sorted(zip(found.keys, found.values, found.headers, strict=True))
    assert rows == [
        (b"1", b'{"id":1,"customer":"Ada","amount":9.5}', [("trace", b"trace-1")]),
        (b"2", b'{"id":2,"amount":3.0}', []),
    ]
    for key, value, _ in rows:
        assert f"| `{key.decode()}` | `{value.decode()}` |" in PAGE


def test_the_documented_null_example_skips_and_counts_rows(spark, kafka, consume, tmp_path):
    topics = {}
    report = tmp_path / "report.json"
    code = EXAMPLES[2].replace(".save()", f'.option("reportPath", {str(report)!r}).save()')
    run_example(code, spark, kafka, topics)
    assert sorted(consume(topics["changes"]).values) == [b"new", b"newer"]
    told = json.loads(report.read_text())
    assert (told["rows"], told["skippedRows"]) == (2, 1)


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="there a stream with them is refused")
def test_the_pages_stream_writes_whole_rows(spark, kafka, consume, tmp_path):
    topics = {}
    query = run_example(EXAMPLES[1], spark, kafka, topics, checkpoint=str(tmp_path))["query"]
    try:
        while not query.recentProgress or not query.lastProgress["sink"]["numOutputRows"] > 0:
            assert query.isActive, query.exception()
            query.processAllAvailable()
    finally:
        query.stop()
    found = consume(topics["ticks"])
    assert json.loads(found.values[0]).keys() == {"timestamp", "value"}
    assert found.keys[0].decode() == str(json.loads(found.values[0])["value"])
