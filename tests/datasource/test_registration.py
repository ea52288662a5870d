"""register() where Spark knows the format already. (What it installs is tested on a real Spark.)"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest

import spark_kafka_sink
from tests.programs import run_python


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


def test_a_format_discovered_by_pyspark_4_0_counts_as_registered():
    taken = "[DATA_SOURCE_ALREADY_EXISTS] Data source 'kprod' already exists. Please choose ..."
    spark_kafka_sink.register(Session(RuntimeError(taken)))


def test_any_other_refusal_reaches_the_user():
    with pytest.raises(RuntimeError, match="no such session"):
        spark_kafka_sink.register(Session(RuntimeError("no such session")))


class LocalSession(Session):
    """A classic session on this machine whose workers run ``pythonExec``."""

    master = "local[2]"

    def __init__(self, python):
        super().__init__()
        self.pythonExec = str(python)

    @property
    def sparkContext(self):
        return self


def interpreter(folder, *, options=""):
    """This interpreter under another path, as a virtual environment has it."""
    folder.mkdir()
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n')
    python.chmod(0o755)
    return python


def test_workers_without_the_package_are_one_warning(tmp_path, caplog):
    python = interpreter(tmp_path / "without", options="-I -S")
    for _ in range(2):
        spark_kafka_sink.register(LocalSession(python))
    (line,) = [record.getMessage() for record in caplog.records if "KP0603" in record.getMessage()]
    assert f"with {python}, which can't import spark_kafka_sink" in line
    assert f"PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to {sys.executable}" in line


def test_an_archives_python_that_the_driver_lacks_is_a_warning(tmp_path, caplog, monkeypatch):
    """On any master: executors unpack the archive, and the driver of client mode does not."""
    monkeypatch.chdir(tmp_path)
    session = LocalSession("./env/bin/python")
    session.master = "spark://m:7077"
    spark_kafka_sink.register(session)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "KP0603" in line
    assert f"with ./env/bin/python, too, and no such program is in {tmp_path}" in line
    assert "tar -xzf env.tar.gz -C env" in line


def test_workers_that_find_the_package_elsewhere_are_no_warning(tmp_path, caplog, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(spark_kafka_sink.__file__).parents[1]))
    spark_kafka_sink.register(LocalSession(interpreter(tmp_path / "with")))
    assert not caplog.records


#: A process of its own: a session's log is its JVM's standard error.
REGISTERED = """
import sys
from pyspark.sql import SparkSession
from spark_kafka_sink import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for _ in range(2):
    register(spark)
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "preflight": "required",
           "kafka.max.block.ms": "100", "checkpointLocation": sys.argv[1]}
rows = spark.readStream.format("rate").load().selectExpr("'v' AS value")
query = rows.writeStream.format("kprod").options(**options).start()
try:
    query.awaitTermination(140)
except Exception as error:
    print(error)
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_source_that_spark_has_found_is_not_registered_over_it(tmp_path):
    """Spark would warn of it: at register(), and each time that a stream starts."""
    run = run_python("-c", REGISTERED, tmp_path)
    assert "no broker answered within 100 ms" in run.stdout, run.stderr  # the stream has started
    assert " WARN " in run.stderr  # warnings are shown
    assert "replaced a" not in run.stderr


class Conf:
    """What a session's conf answers: 4.0 does not know the bytes of a batch."""

    def __init__(self, known=True, **given):
        self.known = known
        self.getAll = given

    def isModifiable(self, name):
        return self.known and name.startswith("spark.sql.")

    def set(self, name, value):
        self.getAll[name] = value


SOCKET = "spark.python.unix.domain.socket.enabled"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"


@pytest.mark.parametrize(
    ("conf", "tune", "expected"),
    [
        (Conf(), True, {BYTES: "4m"}),
        (Conf(), False, {}),
        (Conf(**{BYTES: "1m"}), True, {}),
        (Conf(known=False), True, {}),
    ],
    ids=["asked for", "not asked for", "the user's own stays", "Spark 4.0"],
)
def test_register_sets_what_is_safe_when_asked_and_says_which(conf, tune, expected):
    session = Session()
    session.conf = conf
    before = dict(conf.getAll)
    assert spark_kafka_sink.register(session, tune=tune) == expected
    assert conf.getAll == before | expected


@pytest.mark.parametrize(("given", "hinted"), [({}, True), ({SOCKET: "true"}, False)])
def test_a_setting_that_only_a_new_session_can_have_is_a_hint(given, hinted, caplog):
    session = Session()
    session.conf = Conf(**given)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        spark_kafka_sink.register(session, tune=True)
    assert (f"set {SOCKET}=true before the session starts" in caplog.text) is hinted
