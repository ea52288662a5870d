# Databricks notebook source
# MAGIC %md
# MAGIC # Two topics, one decision
# MAGIC
# MAGIC In this notebook, a function of `foreachBatch` writes each micro-batch into two topics, in one `transaction` block. The
# MAGIC block makes both writes visible, or none of them. In the second micro-batch, the function fails between its two writes.
# MAGIC Then the query starts again, and the notebook counts each row.
# MAGIC
# MAGIC The quick start lists the programs and packages that you need.
# MAGIC
# MAGIC Made of notebooks/two_topics.ipynb. Nobody has run it in a Databricks workspace yet.

# COMMAND ----------

# MAGIC %md
# MAGIC The next cell installs what the notebook needs. On classic compute the package must also be a
# MAGIC library of the cluster, because Spark's Python workers run it.

# COMMAND ----------

# MAGIC %pip install /Volumes/main/default/libraries/spark_kafka_sink-0.2.0-py3-none-any.whl confluent-kafka
# MAGIC %restart_python

# COMMAND ----------

# MAGIC %md
# MAGIC The next cell makes the widgets above. Fill them in, and run it again: the brokers, the scope of the
# MAGIC secrets `username` and `password`, a folder of a volume for files that driver and executors share,
# MAGIC and a name for this run.

# COMMAND ----------

import uuid
from pathlib import Path

dbutils.widgets.text("bootstrap_servers", "b1:9093,b2:9093")
dbutils.widgets.text("secret_scope", "kafka")
dbutils.widgets.text("folder", "/Volumes/main/default/kprod")
dbutils.widgets.text("run", "")

scope = dbutils.widgets.get("secret_scope")
kafka = {
    "kafka.bootstrap.servers": dbutils.widgets.get("bootstrap_servers"),
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": dbutils.secrets.get(scope, "username"),
    "kafka.sasl.password": dbutils.secrets.get(scope, "password"),
}
clients = {name.removeprefix("kafka."): value for name, value in kafka.items()}
run = dbutils.widgets.get("run") or uuid.uuid4().hex[:8]
folder = Path(dbutils.widgets.get("folder")) / run
folder.mkdir(parents=True, exist_ok=True)

# COMMAND ----------

# MAGIC %md
# MAGIC The next cell makes the format `kprod` known to the notebook's session.

# COMMAND ----------

from pyspark.sql import functions as F

from spark_kafka_sink import register

register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Topics and input
# MAGIC
# MAGIC The next cell creates the two topics, and an input of 3000 rows in three files. The stream reads one file in each
# MAGIC micro-batch.

# COMMAND ----------

from confluent_kafka.admin import AdminClient, NewTopic

topics = {kind: f"{kind}s-{run}" for kind in ("order", "payment")}
admin = AdminClient(clients)
for made in admin.create_topics([NewTopic(topic, 3) for topic in topics.values()]).values():
    made.result(30)

for part in range(3):
    rows = spark.range(part * 1000, part * 1000 + 1000).selectExpr(
        "if(id % 4 = 3, 'payment', 'order') as kind", "cast(id as string) as value"
    )
    rows.coalesce(1).write.mode("append").parquet(f"{folder}/input")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The function
# MAGIC
# MAGIC The next cell has the function. The `transaction` block has a name. Use the same name after a restart of the query: by
# MAGIC this name, the sink finds the micro-batches that are already committed. The function persists the batch, because it
# MAGIC reads the batch twice. In micro-batch 1, the function fails once between the two writes, on purpose.

# COMMAND ----------

from spark_kafka_sink import transaction

name = f"two-topics-{run}"
failed = folder / "failed"


def write(batch, batch_id):
    batch.persist()
    with transaction(name, batch_id, **kafka) as both:
        both.write(batch.where("kind = 'order'"), topic=topics["order"])
        if batch_id == 1 and not failed.exists():
            failed.touch()
            raise RuntimeError("planned, between the two writes")
        both.write(batch.where("kind = 'payment'"), topic=topics["payment"])
    batch.unpersist()


def start():
    return (
        spark.readStream.schema("kind string, value string")
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/input")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )

# COMMAND ----------

# MAGIC %md
# MAGIC ## The view of consumers
# MAGIC
# MAGIC The next cell counts the rows of a topic in two ways: like a consumer that reads only committed rows, and like a
# MAGIC consumer with Kafka's default, `read_uncommitted`.

# COMMAND ----------

from collections import Counter

from confluent_kafka import Consumer, TopicPartition


def rows_of(topic, isolation_level="read_committed"):
    """How often each row is there."""
    settings = {"group.id": "two-topics-notebook", "enable.partition.eof": True}
    consumer = Consumer({**clients, **settings, "isolation.level": isolation_level})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
    rows, ends = Counter(), 0
    while ends < 3:
        for message in consumer.consume(1000, timeout=1):
            if message.error() is None:
                rows[int(message.value())] += 1
            else:
                ends += 1
    consumer.close()
    return rows


def show():
    for level in ("read_committed", "read_uncommitted"):
        counts = {kind: rows_of(topic, level).total() for kind, topic in topics.items()}
        print(f"{level:>16}: {counts['order']} orders, {counts['payment']} payments")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The query fails
# MAGIC
# MAGIC The next cell starts the query. Micro-batch 0 is written. In micro-batch 1, the brokers acknowledge the orders, and then
# MAGIC the function fails before it writes the payments.

# COMMAND ----------

from pyspark.errors import StreamingQueryException

query = start()
try:
    query.awaitTermination()
except StreamingQueryException as error:
    assert "planned, between the two writes" in str(error)
else:
    raise AssertionError("the query did not fail")
show()

# COMMAND ----------

# MAGIC %md
# MAGIC The orders of micro-batch 1 are in the topic, but their transaction is aborted. So only consumers with
# MAGIC `read_uncommitted` see them. The next cell checks that consumers with `read_committed` see only the rows of micro-batch
# MAGIC 0.

# COMMAND ----------

assert failed.exists()
visible = rows_of(topics["order"]) + rows_of(topics["payment"])
assert visible == Counter(range(1000))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Start it again
# MAGIC
# MAGIC The next cell starts the same query from the same checkpoint. Spark runs micro-batch 1 again, and then micro-batch 2.

# COMMAND ----------

query = start()
query.awaitTermination()
show()

# COMMAND ----------

# MAGIC %md
# MAGIC The next cell looks for duplicated rows and for missing rows.

# COMMAND ----------

visible = {kind: rows_of(topic) for kind, topic in topics.items()}
assert visible["payment"] == Counter(range(3, 3000, 4))
assert visible["order"] + visible["payment"] == Counter(range(3000))

# COMMAND ----------

# MAGIC %md
# MAGIC Each of the two writes has its own Kafka transactions. The brokers do not commit all these transactions at the same
# MAGIC moment. So one write may become visible some milliseconds before the other write. Several writes, one
# MAGIC decision has the rules for a `transaction` block.
