"""The pages of security name tests of their promises: they exist. And some of those tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.base.security.allow_lists import EVERY
from spark_kafka_sink.network.tls import ssl_context as module
from spark_kafka_sink.network.tls.key_stores import KeyMaterial
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
from tests.test_design import TESTS

ROOT = Path(__file__).parents[2]
SECURITY = (ROOT / "SECURITY.md").read_text()
PAGE = (ROOT / "docs" / "security.md").read_text()
_PROMISE = r"^\* (.+) \((`test_.+`)\)$"
#: A promise is an item of the list, whose lines after the first are indented.
_PROMISED = SECURITY.split("## What is promised")[1].split("\n## ")[0].replace("\n  ", " ")
PROMISES = re.findall(_PROMISE, _PROMISED, re.MULTILINE)
NAMED = set(re.findall(r"`(test_\w+)`", SECURITY + PAGE))


@pytest.mark.parametrize("name", sorted(NAMED))
def test_a_test_that_shows_a_promise_exists(name):
    assert name in TESTS


def test_every_promise_names_tests():
    assert len(PROMISES) > 14
    assert len(PROMISES) == len(re.findall(r"^\* ", _PROMISED, re.MULTILINE))


@pytest.mark.parametrize("variable", EVERY)
def test_each_list_is_named_beside_what_it_limits(variable):
    """In the table of what options reach, and where an operator reads how to set it."""
    reach = SECURITY.split("## What options can do")[1].split("\n## ")[0]
    assert re.search(rf"^\| .+ \| .+ \| .*`{variable}`.* \|$", reach, re.MULTILINE)
    assert re.search(rf"^\| `{variable}` \|", PAGE, re.MULTILINE)


def test_an_import_contract_forbids_what_unpickles():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = (c for c in contracts["contracts"] if "unpickles" in c["name"])
    assert found["source_modules"] == ["spark_kafka_sink"]
    assert {"pickle", "marshal", "shelve", "subprocess"} <= set(found["forbidden_modules"])
    assert found["ignore_imports"] == [
        "spark_kafka_sink.local_kafka.** -> subprocess",
        "spark_kafka_sink.demo.__main__ -> subprocess",  # its own Spark driver
        # Asks the interpreter that Spark is about to run whether it finds this package.
        "spark_kafka_sink.datasource.checks.driver_python -> subprocess",
        # protoc, with paths made here; its input is a file.
        "spark_kafka_sink.records.formats.protobuf_format -> subprocess",
    ]
    source = [p for p in (ROOT / "spark_kafka_sink").rglob("*.py") if "local_kafka" not in p.parts]
    assert len(source) > 100
    evaluating = re.compile(r"(?<![\w.])(?:eval|exec|__import__)\(|\bos\.(?:system|popen)\(")
    assert [str(p) for p in source if evaluating.search(p.read_text())] == []


def test_a_private_key_is_handed_over_in_memory(monkeypatch):
    """Every path that OpenSSL is given is one of this process's own descriptors."""
    given = []

    class Context:
        def load_cert_chain(self, *paths, password):
            given.extend(paths)
            assert password() == ""

    def refuse(*_, **__):
        raise AssertionError("a file is opened by name")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("tempfile.mkstemp", refuse)
    module._load_key(Context(), KeyMaterial("s", "chain", "key", None))
    assert len(given) == 2
    for path in given:
        assert re.fullmatch(r"/(?:proc/self|dev)/fd/\d+", path)


CANARY = "canary9"
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WRONG_ROWS = {
    "partition": pa.array([-1], pa.int32()),
    "timestamp": pa.array([-1], pa.int64()),
    "headers": pa.array([[None]], _HEADERS),
    "headers with a null key": pa.array([[{"key": None, "value": CANARY.encode()}]], _HEADERS),
    "topic": pa.array(["a b"]),
}


@pytest.mark.parametrize("wrong", WRONG_ROWS)
def test_no_error_of_a_row_shows_what_is_in_it(wrong):
    column = wrong.partition(" ")[0]
    places = {"topic": "t", "key_column": 0, "value_column": 1, f"{column}_column": 2}
    if column == "topic":
        del places["topic"]
    rows = pa.RecordBatch.from_pydict(
        {"key": [CANARY], "value": [CANARY * 9], column: WRONG_ROWS[wrong]}
    )
    with pytest.raises(DataError, match="row 0") as raised:
        from_record_batch(rows, ColumnPlan(**places), 0)
    assert CANARY not in f"{raised.value} {raised.value!r}"
