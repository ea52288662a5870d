"""What a later task, or another process, need not ask a real Kafka again."""

from __future__ import annotations

import contextlib
import pickle
import uuid

import psutil
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.datasource.rows import frame


def test_the_drivers_metadata_is_sent_with_the_writer(kafka, topic):
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    schema = StructType().add("value", "string")
    writer = KprodDataSource(CaseInsensitiveDict(options)).writer(schema, overwrite=False)
    cluster = pickle.loads(cloudpickle.dumps(writer)).plan.cluster
    assert len(cluster.topics[topic]) == 2
    assert cluster.leader_for(TopicPartition(topic, 1)).port


def test_producers_stay_warm_between_tasks(spark, kafka, write, topic, consume):
    ports = {int(address.rsplit(":", 1)[1]) for address in kafka.bootstrap.split(",")}

    def connections():
        found = set()
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "python" in process.name():
                    found |= {
                        (process.pid, c.laddr.port)
                        for c in process.net_connections("tcp4")
                        if c.raddr and c.raddr.port in ports and c.status == "ESTABLISHED"
                    }
        return found

    rows = frame(spark, [("v",)], "value string")
    warm = {"kafka.client.id": f"warm-{uuid.uuid4().hex[:6]}"}
    for _ in range(6):  # Spark takes its idle workers in turn: now each has a producer
        write(rows, topic, **warm)
    before = connections()
    assert before
    for _ in range(4):
        write(rows, topic, **warm)
    # One that was opened anew has another port; an idle worker may be gone, with its own.
    after = connections()
    assert after
    assert after <= before
    assert len(consume(topic)) == 10
