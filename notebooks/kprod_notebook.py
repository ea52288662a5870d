"""What each notebook begins and ends with: a Kafka, a Spark session, a folder, names of topics.

``kafka`` has the options of a write, ``clients`` those of confluent-kafka. ``folder`` is for files
that driver and executors share. ``run`` ends names of topics, unlike those of every other run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import uuid
from contextlib import ExitStack
from pathlib import Path

from pyspark.sql import SparkSession

from spark_kafka_sink import register
from spark_kafka_sink.local_kafka import KafkaCluster

_started = ExitStack()

bootstrap = os.environ.get("KPROD_BOOTSTRAP") or _started.enter_context(KafkaCluster()).bootstrap
kafka = {"kafka.bootstrap.servers": bootstrap}  # and your options of TLS and SASL
clients = {name.removeprefix("kafka."): value for name, value in kafka.items()}
folder = Path(tempfile.mkdtemp(prefix="kprod-notebook-"))
run = uuid.uuid4().hex[:8]


def spark_session() -> SparkSession:
    """A client of the Connect server that ``SPARK_REMOTE`` names, else a classic session on this
    machine; with the format ``kprod``.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # which Python Spark's workers run
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder
    if "SPARK_REMOTE" not in os.environ:
        builder = builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.getOrCreate()
    _started.callback(spark.stop)
    register(spark)
    return spark


def end() -> None:
    """End the session, and the Kafka that was started here."""
    _started.close()
