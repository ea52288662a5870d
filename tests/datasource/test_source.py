"""The data source as Spark calls it: planning, pickling, refusals. No Spark, no broker."""

from __future__ import annotations

import logging
import pickle

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from pyspark_kprod import DefaultSource
from spark_kafka_sink.base import errors
from spark_kafka_sink.base.errors import ConfigError, DeliveryError, KafkaError, SchemaError
from spark_kafka_sink.datasource import source
from spark_kafka_sink.datasource.source import KprodDataSource
from tests.datasource.commit_messages import message
from tests.programs import run_python

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", StringType())])
#: Nobody listens there: port 1 answers with a refused connection, at once.
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "kafka.max.block.ms": "200"}
OFF = OPTIONS | {"preflight": "off"}


def data_source(**options):
    return KprodDataSource(CaseInsensitiveDict(options))


@pytest.mark.parametrize("way", ["writer", "streamWriter"])
def test_a_writer_survives_sparks_pickle(way):
    writer = getattr(data_source(**OFF), way)(SCHEMA, overwrite=False)
    copy = pickle.loads(cloud_dumps(writer))
    assert copy.plan == writer.plan
    assert (copy.plan.columns.key_column, copy.plan.columns.value_column) == (0, 1)


def test_a_batch_without_a_broker_fails_at_planning():
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        data_source(**OPTIONS).writer(SCHEMA, overwrite=False)


@pytest.mark.parametrize("kind", [KprodDataSource, DefaultSource], ids=["registered", "found"])
def test_a_streams_commit_asks_no_broker_for_a_preflight(kind):
    planned = kind(CaseInsensitiveDict(OPTIONS | {"preflight": "required"}))
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1"):
        planned.streamWriter(SCHEMA, False)
    # What Spark does before commit and abort: unpickle the source, ask it for a writer by keyword.
    travelled = pickle.loads(cloud_dumps(planned))
    travelled.streamWriter(schema=SCHEMA, overwrite=False).commit([message(batch_id=4)], 4)


def test_a_source_pickled_twice_still_knows_that_it_was_pickled():
    copy = pickle.loads(cloud_dumps(pickle.loads(cloud_dumps(data_source(**OPTIONS)))))
    assert copy.streamWriter(SCHEMA, False).plan.cluster is None


def test_a_process_reads_a_configfile_once(tmp_path):
    """Spark pickles a source and plans with it; between the two the file may be written anew."""
    path = tmp_path / "kafka.properties"
    path.write_text("bootstrap.servers=127.0.0.1:1\nlinger.ms=7\n")
    planned = data_source(topic="t", preflight="off", configFile=str(path))
    travelled = pickle.loads(cloud_dumps(planned))
    path.unlink()
    for one in (planned, travelled):
        config = one.streamWriter(SCHEMA, False).plan.config
        assert config.producer.linger_ms == 7


@pytest.mark.parametrize(
    ("options", "way", "said", "hint"),
    [
        (OFF, "writer", "Save mode Overwrite not allowed for Kafka", '.mode("append")'),
        (OFF, "streamWriter", "does not support complete output mode", "use foreachBatch"),
        ({}, "writer", "no option reached the kprod sink", "INSERT INTO table WITH ("),
    ],
    ids=["overwrite", "complete", "no options"],
)
def test_what_can_not_be_written_is_refused_with_the_way_out(options, way, said, hint):
    with pytest.raises(ConfigError) as raised:
        getattr(data_source(**options), way)(SCHEMA, overwrite=True)
    assert said in raised.value.message
    assert hint in raised.value.hint


def test_options_are_checked_before_columns_and_brokers():
    no_value = StructType([StructField("key", StringType())])
    with pytest.raises(ConfigError, match=r"acks"):
        data_source(**OPTIONS, **{"kafka.acks": "7"}).writer(no_value, overwrite=False)
    with pytest.raises(SchemaError, match="Required attribute 'value' not found"):
        data_source(**OPTIONS).writer(no_value, overwrite=False)


def test_option_warnings_are_logged_once_a_process(caplog):
    errors._said.clear()
    planned = data_source(**OFF, **{"kafka.acks": "1"})
    with caplog.at_level(logging.WARNING):
        planned.streamWriter(SCHEMA, False)
        planned.streamWriter(SCHEMA, False)
        pickle.loads(cloud_dumps(planned)).streamWriter(SCHEMA, False)
    assert len(caplog.records) == len(planned.streamWriter(SCHEMA, False).plan.config.warnings)
    assert caplog.records, "acks=1 switches idempotence off, which Java warns of"


def test_reading_is_refused_and_sparks_own_source_is_named():
    with pytest.raises(ConfigError) as raised:
        data_source(**OFF).reader(SCHEMA)
    assert "format('kafka')" in raised.value.hint


def test_rows_are_adapted_with_a_warning_where_arrow_is_missing(caplog, monkeypatch):
    errors._said.clear()
    monkeypatch.setattr(KprodDataSource, "_has_arrow_stream_writer", lambda self: False)
    writers = [data_source(**OFF).streamWriter(SCHEMA, overwrite=False) for _ in range(2)]
    assert all(isinstance(w, source.KprodRowStreamWriter) for w in writers)
    assert caplog.text.count("rows are converted one by one") == 1
    assert pickle.loads(cloud_dumps(writers[0])).plan == writers[0].plan


def test_named_columns_are_refused_where_arrow_is_missing(monkeypatch):
    monkeypatch.setattr(KprodDataSource, "_has_arrow_stream_writer", lambda self: False)
    source_of_columns = data_source(**OFF, valueColumns="*")
    with pytest.raises(ConfigError, match="no Arrow writer for streams") as raised:
        source_of_columns.streamWriter(SCHEMA, overwrite=False)
    assert "use pyspark 4.1 or later" in raised.value.hint


def test_commit_reports_and_refuses_a_none(caplog):
    writer = data_source(**OFF).writer(SCHEMA, overwrite=False)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        writer.commit([message()])
    assert "kprod wrote rows=3" in caplog.text
    with pytest.raises(DeliveryError, match="1 of 1 tasks sent no commit message"):
        writer.commit([None])


def test_abort_says_what_stays_behind_and_never_raises(caplog):
    writer = data_source(**OFF).streamWriter(SCHEMA, overwrite=False)
    writer.abort([None, message(), None], 7)
    assert (
        "kprod write of micro-batch 7 failed: 1 of 3 tasks had finished (not task 0, 2); their 3"
        in caplog.text
    )
    writer.abort(None, 7)
    writer.abort([object()], 7)


def test_importing_the_package_is_cheap():
    code = (
        "import sys, spark_kafka_sink, pickle;"
        "bad = {'pyspark', 'pyarrow', 'numpy', 'kio'} & set(sys.modules);"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    run_python("-c", code)


def test_commit_loads_neither_arrow_nor_numpy_nor_the_network():
    # Spark commits in a process of its own, which is cold when micro-batches are a minute apart.
    code = (
        "import sys; from pyspark.sql.types import StructType;"
        "from spark_kafka_sink.datasource.source import KprodDataSource, _unpickled;"
        "o = {'kafka.bootstrap.servers': 'a:1', 'topic': 't'};"
        "w = _unpickled(KprodDataSource, o).streamWriter(StructType().add('value', 'string'), 0);"
        "w.commit([], 0);"
        "bad = {'pyarrow', 'numpy', 'pandas', 'kio'} & set(sys.modules);"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    done = run_python("-c", code)
    assert "kprod wrote queryId" not in done.stderr
    assert "kprod wrote rows=0" in done.stderr


def test_the_public_names():
    import spark_kafka_sink

    assert (
        spark_kafka_sink.register.__module__ == "spark_kafka_sink.datasource.session.registration"
    )
    assert set(spark_kafka_sink.__all__) <= set(dir(spark_kafka_sink))
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        spark_kafka_sink.nonsense  # noqa: B018


def test_discovery_imports_neither_the_sink_nor_pyarrow():
    code = (
        "import sys, pyspark_kprod;"
        "bad = {m for m in sys.modules if m.split('.')[0] in ('spark_kafka_sink', 'pyarrow')};"
        "assert pyspark_kprod.DefaultSource.name() == 'kprod';"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    run_python("-c", code)


def test_a_broken_installation_fails_at_use_not_at_discovery(tmp_path):
    broken = tmp_path / "spark_kafka_sink"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('half an installation')")
    code = (
        "import pyspark_kprod;"
        "print(pyspark_kprod.DefaultSource.name());"
        "pyspark_kprod.DefaultSource({'topic': 't'})"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
    done = run_python("-c", code, fails=True)
    assert done.stdout == "kprod\n", done.stderr
    assert "half an installation" in done.stderr


def test_without_pyspark_the_discovery_module_still_imports(tmp_path):
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise ImportError('no pyspark')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_kprod"
    run_python("-c", code)
