"""A hint works when it is followed: each that names an option, a function or a cast is tried."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql.types import (
    BinaryType,
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    YearMonthIntervalType,
)

from spark_kafka_sink.base.errors import ConfigError, SchemaError
from spark_kafka_sink.config.named_columns import NamedColumns
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.datasource.write.schema import plan_columns, with_keys_required
from tests.config.followed_hints import FOLLOWED, Changes
from tests.config.hints_elsewhere import FOLLOWED_BY, NOT_FOLLOWED
from tests.config.hints_of_the_code import hints

BASE = {"kafka.bootstrap.servers": "h:9092", "topic": "t"}
ONCE = {"deliveryGuarantee": "exactly-once"}
LETTERS = "errors.deadletterqueue.topic.name"
TESTS = Path(__file__).parents[1]

Options = dict[str, str]

#: Options that raise; words of the hint; and the options after it is followed, for each way that
#: it names. None is an option that is removed.
OPTIONS: list[tuple[Options, str, list[dict[str, str | None]]]] = [
    ({"subscribe": "t"}, "use topic in its place", [{"subscribe": None, "topic": "t"}]),
    ({"subscribePattern": "t.*"}, "a column topic", [{"subscribePattern": None, "topic": None}]),
    ({"assign": '{"t":[0]}'}, "use topic", [{"assign": None}]),
    ({"startingOffsets": "latest"}, "remove it", [{"startingOffsets": None}]),
    ({"kafka.group.id": "g"}, "remove it", [{"kafka.group.id": None}]),
    ({"kafka.topic": "t"}, "write topic", [{"kafka.topic": None}]),
    ({"topics": "t"}, "did you mean topic?", [{"topics": None}]),
    ({"linger.ms": "5"}, "kafka.linger.ms", [{"linger.ms": None, "kafka.linger.ms": "5"}]),
    (
        {"kafka.compression.codec": "gzip"},
        "use kafka.compression.type",
        [{"kafka.compression.codec": None, "kafka.compression.type": "gzip"}],
    ),
    (
        {"kafka.transactional.id": "x"},
        "set deliveryGuarantee=exactly-once",
        [{"kafka.transactional.id": None, "transactionalIdPrefix": "x"} | ONCE],
    ),
    ({"kafka.key.serializer": "x"}, "remove", [{"kafka.key.serializer": None}]),
    (
        {"txnAppId": "a", "txnVersion": "1"},
        "set deliveryGuarantee=exactly-once, or remove",
        [dict(ONCE), {"txnAppId": None, "txnVersion": None}],
    ),
    (ONCE | {"txnAppId": "a"}, "txnVersion to 1", [{"txnVersion": "1"}]),
    (ONCE | {"txnVersion": "1"}, "set txnAppId to the job", [{"txnAppId": "a"}]),
    (
        {"offsetsGroup": "g"},
        "set deliveryGuarantee=exactly-once, or remove",
        [dict(ONCE), {"offsetsGroup": None}],
    ),
    (
        {"deliveryGuarantee": "none", "kafka.enable.idempotence": "true"},
        "deliveryGuarantee=at-least-once has idempotence",
        [{"deliveryGuarantee": "at-least-once"}],
    ),
    *(
        (
            {"deliveryGuarantee": guarantee, option: value},
            "remove that option, or set deliveryGuarantee=none",
            [{option: None}, {"deliveryGuarantee": "none"}],
        )
        for guarantee in ("exactly-once", "at-least-once")
        for option, value in (("kafka.enable.idempotence", "false"), ("kafka.acks", "1"))
    ),
    *(
        (
            {"kafka.max.in.flight.requests.per.connection": "6"} | guarantee,
            "set it to at most 5, or set deliveryGuarantee=none",
            [
                {"kafka.max.in.flight.requests.per.connection": "5"},
                {"deliveryGuarantee": "none"},
            ],
        )
        for guarantee in ({}, {"deliveryGuarantee": "at-least-once"}, ONCE)
    ),
    (
        {"keyFormat": "string"},
        "set keyColumns, or remove keyFormat",
        [{"keyColumns": "k"}, {"keyFormat": None}],
    ),
    (
        {"valueFormat": "string", "valueColumns": "a,b"},
        "name one column, or set valueFormat=json",
        [{"valueColumns": "a"}, {"valueFormat": "json"}],
    ),
    ({"onNullValue": "skip", "valueColumns": "*"}, "remove onNullValue", [{"onNullValue": None}]),
    (
        {"changelog.mode": "debezium", "valueColumns": "*"},
        "set changelog, or remove changelog.mode",
        [{"changelog": "flink"}, {"changelog.mode": None}],
    ),
    (
        {"changelog": "flink", "onNullValue": "skip"},
        "remove onNullValue, or filter deletes out and remove changelog",
        [{"onNullValue": None}, {"changelog": None}],
    ),
    (
        {"changelog": "flink", "onNullValue": "tombstone"},
        "remove onNullValue",
        [{"onNullValue": None}],
    ),
    (
        {"changelog": "flink", "kafka.partitioner.class": "random"},
        "remove that option: the default partitioner goes by key",
        [{"kafka.partitioner.class": None}, {"kafka.partitioner.class": "murmur2"}],
    ),
    (
        {"changelog": "flink", "kafka.partitioner.ignore.keys": "true"},
        "remove that option: the default partitioner goes by key",
        [{"kafka.partitioner.ignore.keys": None}],
    ),
    (
        {"changelog": "flink", "changelog.mode": "debezium"},
        "set valueColumns=*",
        [{"valueColumns": "*"}],
    ),
    (
        {"changelog": "flink", "changelog.mode": "debezium", "valueColumns": "a.*"},
        "name columns, or set valueColumns=*",
        [{"valueColumns": "*"}, {"valueColumns": "a, b"}],
    ),
    (
        {"tasksAtOnce": "2"},
        "set maxRecordsPerSecond, maxBytesPerSecond or connectionsPerSecond, or remove",
        [
            {"maxRecordsPerSecond": "9"},
            {"maxBytesPerSecond": "9000"},
            {"connectionsPerSecond": "100"},
            {"tasksAtOnce": None},
        ],
    ),
    (
        {"maxLeadersPerTask": "2", "kafka.partitioner.class": "RoundRobinPartitioner"},
        "remove maxLeadersPerTask or kafka.partitioner.class",
        [{"maxLeadersPerTask": None}, {"kafka.partitioner.class": None}],
    ),
    ({"errors.tolerance": "all"}, "name a topic for them", [{LETTERS: "dlq.orders"}]),
    (
        {"errors.tolerance": "all", LETTERS: "t"},
        "their own topic",
        [{LETTERS: "dlq.orders"}],
    ),
    ({"reportTopic": "t"}, "use a separate topic", [{"reportTopic": "reports"}]),
    ({"progressTopic": "t"}, "use a separate topic", [{"progressTopic": "progress"}]),
    ({"topic": "__kprod_commits"}, "use another topic", [{"topic": "orders"}]),
    (
        {"kafka.sasl.username": "u"},
        "set kafka.security.protocol=SASL_SSL (or SASL_PLAINTEXT",
        [
            {
                "kafka.security.protocol": protocol,
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.password": "${env:SECRET}",
            }
            for protocol in ("SASL_SSL", "SASL_PLAINTEXT")
        ]
        + [{"kafka.sasl.username": None}],
    ),
    (
        {"kafka.ssl.endpoint.identification.algorithm": "https"},
        "set kafka.security.protocol=SSL",
        [{"kafka.security.protocol": "SSL"}],
    ),
]


def followed(options: Changes, changes: Changes) -> Options:
    given = {**options, **changes}
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize(
    ("options", "words", "ways"),
    OPTIONS,
    ids=[" ".join(map("=".join, o.items())) for o, *_ in OPTIONS],
)
def test_the_hint_of_an_option_leads_to_a_write(
    monkeypatch: pytest.MonkeyPatch,
    options: Options,
    words: str,
    ways: list[dict[str, str | None]],
) -> None:
    monkeypatch.setenv("SECRET", "s")
    with pytest.raises(ConfigError) as raised:
        parse_sink_config(BASE | options)
    assert words in str(raised.value.hint)
    for changes in ways:
        parse_sink_config(followed(BASE | options, changes))


@pytest.mark.parametrize(
    ("options", "code", "words", "ways"),
    FOLLOWED,
    ids=[f"{row[1]} {row[2][:40]}" for row in FOLLOWED],
)
def test_the_hint_of_a_login_or_a_schema_leads_to_a_write(
    monkeypatch: pytest.MonkeyPatch,
    options: Changes,
    code: str,
    words: str,
    ways: Sequence[Changes],
) -> None:
    monkeypatch.setenv("SECRET", "s")
    with pytest.raises(ConfigError) as raised:
        parse_sink_config(followed(BASE, options))
    assert raised.value.kind.kp_code == code
    assert words in str(raised.value.hint)
    for changes in ways:
        parse_sink_config(followed({**BASE, **options}, changes))


def test_the_hint_of_dead_letters_that_are_off_ends_the_warning():
    (warning,) = parse_sink_config(BASE | {LETTERS: "dlq"}).warnings
    assert "set errors.tolerance=all, or remove them" in warning
    assert not parse_sink_config(BASE | {LETTERS: "dlq", "errors.tolerance": "all"}).warnings
    assert not parse_sink_config(BASE).warnings


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


STRUCT = StructType([StructField("a", IntegerType())])
DOUBLED = StructType([StructField("x", IntegerType()), StructField("x", IntegerType())])
RENAMED = StructType([StructField("x", IntegerType()), StructField("y", IntegerType())])
TEXT = StringType()

#: Columns that raise, words of the hint, and what plans when it is followed: columns, and names of
#: columns for value and key.
COLUMNS = [
    (schema(key=TEXT), "set valueColumns=*", [(schema(key=TEXT), {"value": ("key",)})]),
    (schema(key=TEXT), "add a column value", [(schema(key=TEXT, value=TEXT), {})]),
    (schema(Value=TEXT), "rename Value to value", [(schema(value=TEXT), {})]),
    (
        schema(value=IntegerType()),
        "set valueColumns=value for JSON; or cast it",
        [(schema(value=IntegerType()), {"value": ("value",)}), (schema(value=TEXT), {})],
    ),
    (
        schema(value=STRUCT),
        "set valueColumns=value.* for JSON",
        [(schema(value=STRUCT), {"value": ("value",), "value_is_struct": True})],
    ),
    (
        schema(key=DateType(), value=TEXT),
        "set keyColumns=key for JSON; or cast it, or drop or rename the column key",
        [
            (schema(key=DateType(), value=TEXT), {"key": ("key",)}),
            (schema(key=BinaryType(), value=TEXT), {}),
            (schema(value=TEXT), {}),
            (schema(day=DateType(), value=TEXT), {}),
        ],
    ),
    (
        schema(partition=LongType(), value=TEXT),
        "cast it, or drop or rename the column partition",
        [(schema(partition=IntegerType(), value=TEXT), {}), (schema(value=TEXT), {})],
    ),
    (
        schema(timestamp=TEXT, value=TEXT),
        "cast it, or drop or rename the column timestamp",
        [(schema(timestamp=TimestampType(), value=TEXT), {}), (schema(value=TEXT), {})],
    ),
]


def test_the_hint_of_requests_in_flight_is_right_for_a_producer():
    given = {"bootstrap.servers": "h:9092", "max.in.flight.requests.per.connection": "6"}
    with pytest.raises(ConfigError) as raised:
        parse_producer_config(given)
    assert "a KafkaProducer: enable.idempotence=false" in str(raised.value.hint)
    parse_producer_config(given | {"enable.idempotence": "false"})


def test_the_hint_of_the_sinks_option_is_right_for_a_producer():
    given = {"bootstrap.servers": "h:9092"}
    with pytest.raises(ConfigError) as raised:
        parse_producer_config(given | {"reportPath": "/r"})
    assert raised.value.hint == "remove it, or write with format('kprod')"
    parse_producer_config(given)
    parse_sink_config(BASE | {"reportPath": "/r"})


@pytest.mark.parametrize(("columns", "words", "ways"), COLUMNS)
def test_the_hint_of_a_column_leads_to_a_plan(columns, words, ways):
    with pytest.raises(SchemaError) as raised:
        plan_columns(columns, "t")
    assert words in raised.value.hint
    for after, named in ways:
        plan_columns(after, "t", NamedColumns(**named))


def test_the_hint_of_a_missing_topic_leads_to_a_plan():
    with pytest.raises(SchemaError, match="Use the topic option for setting a topic"):
        plan_columns(schema(value=TEXT), None)
    plan_columns(schema(value=TEXT), "t")
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(value=TEXT, Topic=TEXT), None)
    assert raised.value.hint.endswith("rename Topic to topic")
    plan_columns(schema(value=TEXT, topic=TEXT), None)


def test_the_hint_of_a_column_with_two_sources_leads_to_a_plan():
    named = NamedColumns(value=("a",))
    with pytest.raises(SchemaError) as raised:
        plan_columns(schema(value=TEXT, a=TEXT), "t", named)
    assert re.match("drop the column value, name it in valueColumns, or remove", raised.value.hint)
    plan_columns(schema(a=TEXT), "t", named)
    plan_columns(schema(value=TEXT, a=TEXT), "t", NamedColumns(value=("a", "value")))
    plan_columns(schema(value=TEXT, a=TEXT), "t")


def test_the_hint_of_a_compacted_topic_leads_to_a_plan():
    with pytest.raises(SchemaError, match="is compacted") as raised:
        with_keys_required(plan_columns(schema(value=TEXT), "t"))
    assert "add a column key, or set keyColumns" in raised.value.hint
    with_keys_required(plan_columns(schema(value=TEXT, key=TEXT), "t"))
    named = NamedColumns(key=("id",))
    with_keys_required(plan_columns(schema(value=TEXT, id=TEXT), "t", named))


#: Columns and names that raise, words of the hint, and what plans when it is followed.
NAMED = [
    (
        schema(a=TEXT),
        {"value": ("b",)},
        "the DataFrame has a",
        [(schema(a=TEXT), {"value": ("a",)})],
    ),
    (
        schema(order=STRUCT),
        {"value": ("order.a",)},
        "a field of order is no column: select it as one, with a name",
        [(schema(a=IntegerType()), {"value": ("a",)})],
    ),
    (
        schema(value=TEXT, n=IntegerType()),
        {"headers": ("n",)},
        "cast it to string or binary",
        [
            (schema(value=TEXT, n=TEXT), {"headers": ("n",)}),
            (schema(value=TEXT, n=BinaryType()), {"headers": ("n",)}),
        ],
    ),
    (
        schema(value=TEXT, a=DOUBLED),
        {},
        "rename one of the fields, or drop the column a",
        [(schema(value=TEXT, a=RENAMED), {}), (schema(value=TEXT), {})],
    ),
    (
        schema(value=TEXT, a=YearMonthIntervalType()),
        {},
        "select cast(column as string) in its place, or drop it",
        [(schema(value=TEXT, a=TEXT), {}), (schema(value=TEXT), {})],
    ),
]


@pytest.mark.parametrize(("columns", "names", "words", "ways"), NAMED)
def test_the_hint_of_a_named_column_leads_to_a_plan(columns, names, words, ways):
    with pytest.raises(SchemaError) as raised:
        plan_columns(columns, "t", NamedColumns(**names))
    assert words in raised.value.hint
    for after, named in ways:
        plan_columns(after, "t", NamedColumns(**named))


def raised_hints() -> list[str]:
    """The hints of all rows of this module."""
    found = []
    for options in (row[0] for row in (*OPTIONS, *FOLLOWED)):
        with pytest.raises(ConfigError) as raised:
            parse_sink_config(followed(BASE, dict(options)))
        found.append(str(raised.value.hint))
    for columns, names in [*((row[0], {}) for row in COLUMNS), *(row[:2] for row in NAMED)]:
        with pytest.raises(SchemaError) as of_columns:
            plan_columns(columns, "t", NamedColumns(**names))
        found.append(str(of_columns.value.hint))
    return found


#: The name of a producer's option without the prefix of a write.
BARE = re.compile(r"(?<![\w.}])[a-z]+(?:\.[a-z0-9]+)+")
#: Code that only a producer without Spark runs, that puts the prefix before names, or that options
#: of a schema registry run, too. The last one is no option of a write.
WITH_BARE_NAMES = ("config/", "producer/send/", "producer/transaction/", "network/tls/")
NOT_SET_BY_A_USER = "transactional.id"


def bare_names(text: str) -> set[str]:
    return (set(BARE.findall(text)) & PRODUCER_OPTIONS.keys()) - {NOT_SET_BY_A_USER}


def test_a_hint_has_option_names_as_a_write_has_them(monkeypatch):
    monkeypatch.setenv("SECRET", "s")
    of_code = {hint.text for hint in hints() if not hint.file.startswith(WITH_BARE_NAMES)}
    for text in {*raised_hints(), *of_code}:
        assert not bare_names(text.partition("(a KafkaProducer: ")[0]), text


def meant_by(text: str) -> set[str]:
    """The hint that is ``text``, or otherwise the hints that begin with it."""
    known = {hint.text for hint in hints()}
    return {text} & known or {one for one in known if one.startswith(text)}


def test_every_hint_that_names_something_has_a_case(monkeypatch):
    """A new one needs a row of OPTIONS here or of FOLLOWED (followed_hints.py), or the name of a
    test in FOLLOWED_BY, or a reason in NOT_FOLLOWED (hints_elsewhere.py). A hint is a whole
    sentence in the code, and not put together. (To parse the whole package takes two CPU seconds.)
    """
    monkeypatch.setenv("SECRET", "s")
    raised = raised_hints()
    elsewhere = [text for texts in (FOLLOWED_BY | NOT_FOLLOWED).values() for text in texts]
    covered = {whole for text in elsewhere for whole in meant_by(text)}
    assert len(hints()) > 300
    missing = [
        hint
        for hint in hints()
        if hint.names_something and not any(map(hint.is_in, raised)) and hint.text not in covered
    ]
    shown = "\n".join(f"{hint.file}: {hint.text}" for hint in missing)
    assert not missing, f"hints without a case (the docstring says where it belongs):\n{shown}"


def test_every_case_elsewhere_is_one_of_a_hint():
    for name, texts in (FOLLOWED_BY | NOT_FOLLOWED).items():
        for text in texts:
            assert len(meant_by(text)) == 1, (name, text, meant_by(text))
    for name in FOLLOWED_BY:
        path, _, test = name.partition("::")
        assert f"def {test}(" in (TESTS / path).read_text(), name
