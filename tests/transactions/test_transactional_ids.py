"""Ids are built and read back, and no other client's are taken for ours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.transactions.transactional_ids import (
    TransactionalId,
    check_id,
    check_part,
    log_id,
    log_key,
    parse,
    prefix_of_key,
)

PARTS = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True)
WORKERS = st.from_regex(r"[0-9a-f]{12}(\.[0-9a-f]{12})?|offsets", fullmatch=True)
NUMBERS = st.integers(0, 2**63 - 1)


@given(PARTS, st.one_of(st.none(), PARTS), PARTS, WORKERS, NUMBERS, NUMBERS)
def test_an_id_is_parsed_back_with_its_key(prefix, name, run, worker, number, planned):
    made = TransactionalId(log_key(prefix, name), run, worker, number, planned)
    assert parse(str(made)) == made
    assert made.prefix == prefix


@given(st.text(st.sampled_from("ag~0-1."), max_size=12))
def test_what_is_read_as_an_id_is_that_text_again(text):
    found = parse(text)
    assert found is None or str(found) == text


@given(PARTS, st.one_of(st.none(), PARTS))
def test_the_log_s_ids_are_no_data_ids(prefix, name):
    key = log_key(prefix, name)
    assert prefix_of_key(key) == prefix
    assert parse(log_id(key)) is None
    assert parse(check_id(key)) is None
    assert log_id(key) != check_id(key)


def test_a_prefix_of_another_prefix_is_not_confused_with_it():
    found = parse("a.b~run~g1.0123~0")
    assert found is not None
    assert found.prefix == "a.b" != "a"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a~b",
        "a~b~c",
        "a~b~1",
        "a~b~-1",
        "a~b~01",
        "a~b~c~1",
        "a~b~c~d~1",
        "a~b~g1~1",
        "a~b~g1.~1",
        "a~b~gx.c~1",
        "a~b~g01.c~1",
        "a~b~c~d~g1.e~1",
        "a~~1",
        "~b~1",
        "a~b~1 ",
        "ä~b~1",
    ],
)
def test_other_texts_are_no_ids(text):
    assert parse(text) is None


@pytest.mark.parametrize("value", ["", "a~b", "a b", "x" * 101, "a\n", "über"])
def test_an_illegal_prefix_is_refused_by_its_option_s_name(value):
    with pytest.raises(ConfigError, match="transactionalIdPrefix is"):
        check_part("transactionalIdPrefix", value)


def test_the_longest_prefix_is_taken():
    assert check_part("transactionalIdPrefix", "x" * 100) == "x" * 100
