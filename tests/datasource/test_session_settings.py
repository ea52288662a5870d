"""Settings of a session that shape JSON reach the sink."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.parsing import parse_sink_config

NULLS = "spark.sql.jsonGenerator.ignoreNullFields"
ZONE = "spark.sql.session.timeZone"


def test_an_option_beats_the_sessions_setting():
    given = {"kafka.bootstrap.servers": "b:1", "valueColumns": "a"}
    of_session = {"sessionIgnoreNullFields": "false", "sessionTimeZone": "+05"}
    json = parse_sink_config(given | of_session).named_columns.json
    assert (json.ignore_null_fields, json.time_zone) == (False, "+05")
    json = parse_sink_config(
        given | of_session | {"jsonIgnoreNullFields": "true"}
    ).named_columns.json
    assert json.ignore_null_fields


@pytest.fixture
def settings(spark):
    """Sets settings of the session for a test."""
    before = spark.conf.get(ZONE)
    yield spark.conf.set
    spark.conf.set(ZONE, before)
    spark.conf.unset(NULLS)


def test_nulls_are_kept_as_the_session_says(spark, kafka, write, consume, settings):
    topic = kafka.unique_topic("nulls", partitions=1)
    frame = spark.sql("SELECT CAST(NULL AS INT) AS a, 1 AS b")
    settings(NULLS, "false")
    write(frame, topic, valueColumns="*")
    write(frame, topic, valueColumns="*", jsonIgnoreNullFields="true")
    settings(NULLS, "true")
    write(frame, topic, valueColumns="*")
    assert sorted(consume(topic).values) == [b'{"a":null,"b":1}', b'{"b":1}', b'{"b":1}']


def test_variants_and_zones_have_the_sessions_time_zone(spark, kafka, write, consume, settings):
    topic = kafka.unique_topic("zones", partitions=1)
    settings(ZONE, "GMT-3")
    frame = spark.sql(
        "SELECT TIMESTAMP'2024-07-01 12:00:00' AS at,"
        " to_variant_object(named_struct('at', TIMESTAMP'2024-07-01 12:00:00')) AS variant"
    )
    (wanted,) = frame.selectExpr("to_json(struct(*)) AS json").collect()
    write(frame, topic, valueColumns="*")
    assert consume(topic).values == [wanted.json.encode()]


def test_an_unknown_time_zone_is_one_error_before_any_task(spark, settings, write):
    try:
        settings(ZONE, "SystemV/EST5")
    except Exception as error:
        pytest.skip(f"this Java does not know it either: {error}")
    frame = spark.sql("SELECT TIMESTAMP'2024-07-01 12:00:00' AS at")
    jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
    with pytest.raises(Exception, match="time zone 'SystemV/EST5'") as raised:
        write(frame, "t", valueColumns="*", preflight="off")
    assert "KP0100" in str(raised.value)
    assert spark.sparkContext.statusTracker().getJobIdsForGroup(None) == jobs
