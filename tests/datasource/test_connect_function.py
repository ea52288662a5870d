"""A function of foreachBatch that does not start over Spark Connect."""

from __future__ import annotations

import pytest

from spark_kafka_sink.datasource.session.refused_streams import _start
from spark_kafka_sink.datasource.session.spark_patches import wrap


def started(said):
    """The error of a start that Spark answers with ``said``."""

    class Writer:
        def start(self, path=None, source=None, **options):
            raise RuntimeError(said)

    wrap(Writer, "start", _start)
    with pytest.raises(RuntimeError, match=said) as caught:
        Writer().start(queryName="orders")
    return getattr(caught.value, "__notes__", [])


def test_a_server_without_pandas_is_named():
    (note,) = started("Python worker failed to connect back.")
    assert "needs pandas and grpcio" in note
    assert "pip install 'pyspark[connect]'" in note


def test_any_other_error_of_a_start_has_no_note():
    assert started("a path is needed") == []
