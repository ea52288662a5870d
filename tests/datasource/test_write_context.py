"""The option that says who makes a write: what its own functions made, and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_config import TXN_CONTEXT
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.write.write_context import WriteContext
from tests.datasource.exactly_once.transaction_plans import config

PARTS = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True)
COUNTS = st.one_of(st.none(), st.integers(0, 2**31))
OFFSETS = st.dictionaries(
    PARTS,
    st.dictionaries(st.integers(0, 2**31 - 1).map(str), st.integers(0, 2**63 - 1), max_size=3),
    max_size=3,
)
RUN = {"run": "r"}
FIELDS = ["run", "query_id", "token", "write", "writes", "abort", "offsets", "digest", "another"]


@given(
    PARTS,
    st.tuples(*[st.one_of(st.just(""), PARTS)] * 3),
    st.integers(0, 2**31),
    COUNTS,
    st.tuples(st.booleans(), st.booleans()),
    st.one_of(st.none(), OFFSETS),
)
def test_it_survives_its_option(run, texts, write, writes, flags, offsets):
    query, token, digest = texts
    context = WriteContext(run, query, token, write, writes, *flags, offsets, digest)
    assert WriteContext.of_option(context.to_option()) == context


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "7",
        '"r"',
        "{",
        "[" * 100_000,
        '{"a":' * 50_000,
        "NaN",
        "\x00",
        *(
            json.dumps(fields)
            for fields in (
                {"run": ""},
                {"run": "a~b"},
                {"run": "a\nb"},
                {"run": "x" * 101},
                {"run": 7},
                RUN | {"query_id": "a~b"},
                RUN | {"query_id": 7},
                RUN | {"write": -1},
                RUN | {"writes": -1},
                RUN | {"writes": True},
                RUN | {"token": "a~b"},
                RUN | {"digest": 7},
                RUN | {"abort": 1},
                RUN | {"tasks_may_run": "true"},
                RUN | {"may_be_decided": 1},
                RUN | {"offsets": 7},
                RUN | {"offsets": {"t": 7}},
                RUN | {"offsets": {"t": {"0": -1}}},
                RUN | {"offsets": {"t": {"0": "7"}}},
                RUN | {"offsets": {"t": {"0": 7.5}}},
                RUN | {"offsets": {"t": {"zero": 7}}},
                RUN | {"offsets": {"t": {"-1": 7}}},
                RUN | {"other": 1},
                {"query_id": "q"},
            )
        ),
    ],
)
def test_a_text_that_is_none_is_refused_and_not_shown(text):
    with pytest.raises(ConfigError) as raised:
        WriteContext.of_option(text)
    assert raised.value.message == f"{TXN_CONTEXT} is set by foreach_batch and transaction only"
    assert "remove it" in raised.value.hint


@given(st.one_of(st.text(max_size=60), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(FIELDS), inner, max_size=5
    ),
    max_leaves=8,
).map(json.dumps)))  # fmt: skip
def test_any_text_is_a_context_or_an_error_of_the_option(text):
    try:
        context = WriteContext.of_option(text)
    except ConfigError:
        return
    assert isinstance(context.run, str)
    assert "~" not in context.run + context.query_id
    assert WriteContext.of_option(context.to_option()) == context


def test_a_forged_context_fails_before_any_request():
    given = config(txnAppId="a", txnVersion="1", txnContext='{"run":"a~b"}')
    with pytest.raises(ConfigError, match="set by foreach_batch and transaction only"):
        plan_transactions(given, streaming=False)
