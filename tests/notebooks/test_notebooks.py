"""Every notebook runs once from top to bottom on a real broker, half of them in a Connect session.

A start of a notebook costs half a minute of two cores. What it calls runs in both kinds of session
in tests/datasource; ``make notebooks`` runs all in a classic one.
"""

from __future__ import annotations

import os

import pytest

from bench.peers import avro_jars, connector_jars
from spark_kafka_sink.local_kafka import LocalKafkaError
from tests.notebooks.connect_server import connect_server
from tools import notebooks

pytestmark = [
    pytest.mark.long,
    pytest.mark.notebook,
    pytest.mark.spark,
    pytest.mark.broker,
    pytest.mark.timeout(notebooks.LONGEST_S + 60),
]
#: What a notebook says that has read with it. A machine that can't fetch it has the half without.
WITH_CONNECTOR = {"migration": "'kafka': 5000", "schemas": "199 large orders"}
#: Those with a function's batch, a block, a reader or a report: what Connect does its own way.
IN_CONNECT = ("quick_start", "report", "keys_and_tombstones", "two_topics", "dead_letters")


@pytest.fixture(scope="module")
def jars():
    """Spark's own Kafka connector and spark-avro, for ``spark.jars``."""
    try:
        return f"{connector_jars()},{avro_jars()}"
    except LocalKafkaError:
        if os.environ.get("CI"):
            raise
        return ""


@pytest.fixture(scope="module")
def remote(jars, tmp_path_factory):
    with connect_server(tmp_path_factory.mktemp("connect"), jars) as address:
        yield address


@pytest.fixture
def environment(kafka, jars):
    return notebooks.environment(kafka.bootstrap, jars)


def text_of(notebook):
    """What its cells print or show, and not what Spark logs."""
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", ())]
    shown = [one.get("text") or one.get("data", {}).get("text/plain", "") for one in outputs]
    return "".join(s for s, one in zip(shown, outputs, strict=True) if one.get("name") != "stderr")


def check(name, notebook, jars):
    text, _ = notebooks.page(name, notebook)
    kept = (notebooks.PAGES / f"{name}.md").read_text("utf-8")
    if jars:
        others = notebooks.words_of_page(text) ^ notebooks.words_of_page(kept)
        assert sorted(others) == [], f"{name}.md is old: make notebooks NAMES={name}"
    said = WITH_CONNECTOR.get(name)
    if said is not None:
        assert (said in text_of(notebook)) == bool(jars), "the half with Spark's own connector"


@pytest.mark.parametrize("name", [one for one in notebooks.NAMES if one not in IN_CONNECT])
def test_a_notebook_runs_in_a_classic_session(name, environment, jars):
    check(name, notebooks.executed(notebooks.read(name), environment), jars)


@pytest.mark.parametrize("name", IN_CONNECT)
def test_a_notebook_runs_in_a_connect_session(name, environment, jars, remote):
    run = notebooks.executed(notebooks.read(name), environment | {"SPARK_REMOTE": remote})
    check(name, run, jars)
