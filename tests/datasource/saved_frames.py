"""Sessions and DataFrames, as far as ``foreach_batch`` and ``transaction`` look at them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from spark_kafka_sink.datasource.write.write_context import WriteContext
from tests.fakes.jvm_session import RunningQuery, jvm_session

OPTIONS = {"kafka.bootstrap.servers": "h:9092", "topic": "t", "kafka.linger.ms": 7}


class Session:
    """A SparkSession as far as it is used. ``properties`` are the calling thread's, None with Spark
    Connect; ``query`` is the (query id, run id) of the query whose session it is, in a classic
    session (empty: it is that of none); ``saved`` collects what is written.
    """

    def __init__(self, properties=None, query=None):
        self._properties = properties
        self._query = query
        self.saved = []

    @property
    def _jsparkSession(self):
        if self._query is None:
            raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")
        name = f"session of {self._query}"
        return jvm_session(name, *([RunningQuery(*self._query, name)] if self._query else []))

    @property
    def sparkContext(self):
        if self._properties is None:
            raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")
        return self

    def getLocalProperty(self, name):
        return self._properties.get(name)

    def range(self, rows):
        return Frame(self, fails=False, rows=rows)

    @property
    def read(self):
        return self

    def format(self, name):
        assert name == "binaryFile"
        return self

    def load(self, path):
        rows = [(Path(path).read_bytes(),)]
        files = SimpleNamespace(collect=lambda: rows, select=lambda _: files, where=lambda _: files)
        return files


class Frame:
    """What a foreachBatch function is given, as far as it is used."""

    def __init__(self, session=None, *, fails=False, rows=3, plan=0, columns="value"):
        self.sparkSession = Session() if session is None else session
        self.told = {}
        self.rows = rows
        self._plan = plan
        self.schema = SimpleNamespace(json=lambda: columns)
        self._fails = fails

    def semanticHash(self):
        return self._plan

    def selectExpr(self, *_):
        return self

    @property
    def write(self):
        return self

    def format(self, name):
        self.told["format"] = name
        return self

    def options(self, **options):
        self.told |= options
        return self

    def option(self, key, value):
        self.told[key] = value
        return self

    def mode(self, mode):
        self.told["mode"] = mode
        return self

    def save(self):
        self.sparkSession.saved.append(self)
        if self._fails:
            raise OSError("the write broke")

    @property
    def context(self):
        return WriteContext.of_option(self.told["txnContext"])


def written(write, batch_id=0, properties=None, *, fails=False):
    """The frame that ``write`` was given, as it was saved."""
    frame = Frame(Session(properties), fails=fails)
    if fails:
        with pytest.raises(OSError, match="the write broke"):
            write(frame, batch_id)
    else:
        write(frame, batch_id)
    assert frame.sparkSession.saved == [frame]
    return frame
