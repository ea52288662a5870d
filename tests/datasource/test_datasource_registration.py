"""register() where Spark knows the format already. (What it installs is tested on a real Spark.)"""

from __future__ import annotations

import pytest

import spark_kafka_sink
from spark_kafka_sink.datasource.source import KprodDataSource


class Session:
    """A session whose registry answers with an error, or takes what it is given."""

    def __init__(self, error=None):
        self.error = error
        self.taken = []

    @property
    def dataSource(self):
        return self

    def register(self, source):
        if self.error is not None:
            raise self.error
        self.taken.append(source)


def test_a_session_gets_the_source():
    session = Session()
    spark_kafka_sink.register(session)
    assert session.taken == [KprodDataSource]


def test_a_format_that_pyspark_4_0_has_discovered_already_is_as_good_as_registered():
    taken = "[DATA_SOURCE_ALREADY_EXISTS] Data source 'kprod' already exists. Please choose ..."
    spark_kafka_sink.register(Session(RuntimeError(taken)))


def test_any_other_refusal_reaches_the_user():
    with pytest.raises(RuntimeError, match="no such session"):
        spark_kafka_sink.register(Session(RuntimeError("no such session")))
