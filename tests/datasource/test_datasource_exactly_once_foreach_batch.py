"""foreach_batch: what it sets for each micro-batch, and what it refuses. No Spark, no broker."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import uuid

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps

import spark_kafka_sink
from spark_kafka_sink import foreach_batch
from spark_kafka_sink.errors import ConfigError

OPTIONS = {"kafka.bootstrap.servers": "h:9092", "topic": "t", "kafka.linger.ms": 7}


class Frame:
    """What a foreachBatch function is given, as far as it is used."""

    def __init__(self):
        self.told = {}
        self.saved = 0

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
        self.saved += 1


def test_a_micro_batch_is_written_under_its_name_and_number():
    frame = Frame()
    foreach_batch("orders", **OPTIONS)(frame, 12)
    assert frame.saved == 1
    assert frame.told == OPTIONS | {
        "format": "kprod",
        "mode": "append",
        "deliveryGuarantee": "exactly-once",
        "txnAppId": "orders",
        "txnVersion": 12,
    }


def test_it_survives_a_pickle():
    write = foreach_batch("pickled", **OPTIONS)
    assert pickle.loads(cloud_dumps(write)) == write


@pytest.mark.parametrize("name", ["", "a b", "a~b", "x" * 101])
def test_an_illegal_name_is_refused(name):
    with pytest.raises(ConfigError, match="the name given to foreach_batch is"):
        foreach_batch(name, **OPTIONS)


@pytest.mark.parametrize("key", ["txnAppId", "txnversion", "TXNVERSION"])
def test_what_it_sets_itself_is_refused(key):
    with pytest.raises(ConfigError, match=f"foreach_batch sets {key} itself"):
        foreach_batch("refused", **OPTIONS, **{key: "1"})


def test_another_guarantee_is_refused_and_its_own_is_taken():
    with pytest.raises(ConfigError, match="deliveryGuarantee is at-least-once"):
        foreach_batch("refused", **OPTIONS, deliveryGuarantee="at-least-once")
    foreach_batch("taken", **OPTIONS, deliveryguarantee="Exactly-Once")


def test_two_writes_under_one_name_are_warned_of_and_the_same_one_again_is_not(caplog):
    name = f"twice-{uuid.uuid4().hex}"
    with caplog.at_level(logging.WARNING):
        foreach_batch(name, **OPTIONS)
        foreach_batch(name, **OPTIONS)
        assert caplog.text == ""
        foreach_batch(name, **(OPTIONS | {"topic": "another"}))
    assert f"foreach_batch('{name}') is made twice" in caplog.text
    assert "the second writes nothing" in caplog.text


def test_it_is_public_and_stays_a_function_when_its_module_is_imported():
    assert "foreach_batch" in spark_kafka_sink.__all__
    code = (
        "import spark_kafka_sink.datasource.foreach_batch, sys, spark_kafka_sink; "
        "assert callable(spark_kafka_sink.foreach_batch); "
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
