# Databricks notebook source
# MAGIC %md
# MAGIC # Quick start
# MAGIC
# MAGIC This notebook writes rows into Kafka in three ways: as a batch, as a stream, and from `foreachBatch`. It also reads the
# MAGIC report of a write, and plots the partitions of the rows.
# MAGIC
# MAGIC Made of notebooks/quick_start.ipynb. Nobody has run it in a Databricks workspace yet.

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
# MAGIC ## Topics
# MAGIC
# MAGIC The next cell creates three topics with six partitions each.

# COMMAND ----------

from confluent_kafka.admin import AdminClient, NewTopic

topics = [f"quick-start-{kind}-{run}" for kind in ("batch", "stream", "each")]
batch_topic, stream_topic, each_topic = topics
admin = AdminClient(clients)
for made in admin.create_topics([NewTopic(topic, 6) for topic in topics]).values():
    made.result(30)

# COMMAND ----------

# MAGIC %md
# MAGIC ## A batch
# MAGIC
# MAGIC The next cell writes 20 000 rows. `key` and `value` can be strings or bytes. The column `timestamp` is the timestamp of
# MAGIC the record. The column `headers` can be a map.

# COMMAND ----------

orders = spark.range(20_000).select(
    F.concat(F.lit("customer-"), F.col("id") % 1000).alias("key"),
    F.to_json(F.struct("id", (F.rand(7) * 100).alias("amount"))).alias("value"),
    F.current_timestamp().alias("timestamp"),
    F.create_map(F.lit("origin"), F.lit("notebook")).alias("headers"),
)

(
    orders.write.format("kprod")
    .options(**kafka)
    .option("topic", batch_topic)
    .option("kafka.compression.type", "lz4")
    .option("reportPath", f"{folder}/reports/")
    .save()
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The report of a write
# MAGIC
# MAGIC After each write, the driver makes a report with the outcome, the number of rows, and the times. With the option
# MAGIC `reportPath`, the driver also writes the report into a file. The next cell shows some fields of the report. The report
# MAGIC notebook shows more.

# COMMAND ----------

import json

(file,) = (folder / "reports").glob("*.json")
report = json.loads(file.read_text())
assert report["rows"] == 20_000
fields = ("outcome", "rows", "tasks", "batches", "bytesBeforeCompression", "bytes", "retries")
{name: report[name] for name in fields}

# COMMAND ----------

# MAGIC %md
# MAGIC ## The rows in the topic
# MAGIC
# MAGIC The next cell counts the rows in each partition with confluent-kafka.

# COMMAND ----------

from confluent_kafka import Consumer, TopicPartition


def rows_in(topic):
    """Rows of each partition of a topic."""
    consumer = Consumer({**clients, "group.id": "quick-start"})
    counts = {}
    for partition in range(6):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
        counts[partition] = high - low
    consumer.close()
    return counts


counts = rows_in(batch_topic)
assert sum(counts.values()) == 20_000
counts

# COMMAND ----------

# MAGIC %md
# MAGIC The next cell plots these numbers. The hash of a key chooses its partition, as with Kafka's Java clients
# MAGIC (proof). This hash spreads the 1000 keys evenly.

# COMMAND ----------

import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 2.5), layout="constrained")
axes.bar([str(partition) for partition in counts], list(counts.values()))
axes.set(xlabel="partition", ylabel="rows", title="Rows of each partition")
plt.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## A stream
# MAGIC
# MAGIC The next cell writes a stream. A stream accepts the same options of kprod as a batch, and also needs a checkpoint. The
# MAGIC cell stops the stream after three micro-batches.

# COMMAND ----------

query = (
    spark.readStream.format("rate-micro-batch")
    .option("rowsPerBatch", 1000)
    .load()
    .select(F.col("value").cast("string").alias("value"))
    .writeStream.format("kprod")
    .options(**kafka)
    .option("topic", stream_topic)
    .option("checkpointLocation", f"{folder}/stream")
    .start()
)
while (query.lastProgress or {"batchId": -1})["batchId"] < 2:
    query.awaitTermination(0.5)  # raises what the query fails with
query.stop()
assert sum(rows_in(stream_topic).values()) >= 3000

# COMMAND ----------

# MAGIC %md
# MAGIC ## foreachBatch
# MAGIC
# MAGIC The next cell writes each micro-batch with a function. Use `foreachBatch` if the query has the output mode `update`,
# MAGIC because Spark refuses this mode for Python sinks. Also use it if each micro-batch goes to several topics (two
# MAGIC topics). The rows in the next cell have no key. A task sends such rows to one partition until a batch
# MAGIC of the producer is full. Here each task has too few rows for a full batch. So the rows of a task are in one partition.

# COMMAND ----------

def write(batch, batch_id):
    batch.write.format("kprod").mode("append").options(**kafka).option("topic", each_topic).save()


spark.range(500).selectExpr("cast(id as string) as value").write.parquet(f"{folder}/input")
query = (
    spark.readStream.schema("value string")
    .parquet(f"{folder}/input")
    .writeStream.foreachBatch(write)
    .option("checkpointLocation", f"{folder}/each")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
assert sum(rows_in(each_topic).values()) == 500
rows_in(each_topic)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The end
# MAGIC
# MAGIC With the default guarantee, at-least-once, a stream may write rows twice if its driver is killed and started again.
# MAGIC Exactly once prevents this.
