# Databricks notebook source
# MAGIC %md
# MAGIC # Exactly once, with a driver that is killed
# MAGIC
# MAGIC This notebook shows that a killed driver causes no duplicates with exactly-once:
# MAGIC
# MAGIC 1. A Spark application runs two queries, which write the same rows into two topics. The first query has
# MAGIC    `deliveryGuarantee=exactly-once`. The second query has the default, `at-least-once`.
# MAGIC 2. In the middle of the write, the driver is killed with SIGKILL.
# MAGIC 3. The application starts again from its checkpoints.
# MAGIC 4. A consumer with `isolation.level=read_committed` counts every row.
# MAGIC
# MAGIC The quick start lists the programs and packages that you need.
# MAGIC
# MAGIC Made of notebooks/exactly_once.ipynb. Nobody has run it in a Databricks workspace yet.

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
dbutils.widgets.text("run", "first")

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
# MAGIC ## Two topics
# MAGIC
# MAGIC The next cell makes a topic for each of the two guarantees, unless they are there from the run
# MAGIC before the kill.

# COMMAND ----------

from confluent_kafka.admin import AdminClient, NewTopic

topics = {guarantee: f"{guarantee}-{run}" for guarantee in ("exactly-once", "at-least-once")}
admin = AdminClient(clients)
there = admin.list_topics(timeout=30).topics
new = [NewTopic(topic, 6) for topic in topics.values() if topic not in there]
for made in (admin.create_topics(new) if new else {}).values():
    made.result(30)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The queries
# MAGIC
# MAGIC The next cell has the function that starts the two queries. The queries differ in the guarantee. The exactly-once query
# MAGIC also needs a `transactionalIdPrefix`. Two queries must not have the same prefix. The prefix must be the same at every
# MAGIC start, because the sink finds the state of the query by this prefix.

# COMMAND ----------

def start_queries(spark, kafka, folder, topics):
    """A query for each guarantee, from its checkpoint: 500 rows in each micro-batch."""
    queries = []
    for guarantee, topic in topics.items():
        writer = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 500)
            .option("numPartitions", 2)
            .option("startTimestamp", 1)
            .load()
            .selectExpr("cast(value as string) as value")
            .writeStream.format("kprod")
            .options(**kafka)
            .option("topic", topic)
            .option("deliveryGuarantee", guarantee)
            .option("checkpointLocation", f"{folder}/{topic}")
        )
        if guarantee == "exactly-once":
            writer = writer.option("transactionalIdPrefix", topic)
        queries.append(writer.start())
    return queries

# COMMAND ----------

# MAGIC %md
# MAGIC ## The application
# MAGIC
# MAGIC On Databricks the application is this notebook, and its driver is the compute's. The next cell
# MAGIC starts the queries.

# COMMAND ----------

from spark_kafka_sink import register

register(spark)
queries = start_queries(spark, kafka, str(folder), topics)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The view of a consumer
# MAGIC
# MAGIC The next cell counts rows like a consumer that reads only committed rows.

# COMMAND ----------

from collections import Counter

from confluent_kafka import Consumer, TopicPartition


def rows_of(topic):
    """How often each row is there."""
    settings = {
        "group.id": "exactly-once-notebook",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer({**clients, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(6)])
    rows, ends = Counter(), 0
    while ends < 6:
        for message in consumer.consume(1000, timeout=1):
            if message.error() is None:
                rows[int(message.value())] += 1
            else:
                ends += 1
    consumer.close()
    return rows

# COMMAND ----------

# MAGIC %md
# MAGIC ## Kill it
# MAGIC
# MAGIC The next cell waits until two micro-batches are visible. Then, while the queries run, restart the
# MAGIC compute from its menu, and run the notebook from its top with the same `run`.

# COMMAND ----------

import time

while rows_of(topics["exactly-once"]).total() < 1000:
    assert all(query.exception() is None for query in queries)
    time.sleep(0.5)
before = {guarantee: rows_of(topic).total() for guarantee, topic in topics.items()}
before

# COMMAND ----------

# MAGIC %md
# MAGIC ## Start it again
# MAGIC
# MAGIC After the restart, the queries have continued from their checkpoints. If the driver died after its
# MAGIC decision to commit a micro-batch, the new start first finished this commit. If it died before the
# MAGIC decision, Spark has written the micro-batch again. The next cell waits for more rows and stops the
# MAGIC queries.

# COMMAND ----------

while rows_of(topics["exactly-once"]).total() < before["exactly-once"] + 3000:
    assert all(query.exception() is None for query in queries)
    time.sleep(0.5)
for query in queries:
    query.stop()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Count
# MAGIC
# MAGIC The next cell looks for duplicated rows and for missing rows.

# COMMAND ----------

after = {guarantee: rows_of(topic) for guarantee, topic in topics.items()}
for guarantee, rows in after.items():
    doubled = sum(count - 1 for count in rows.values())
    missing = max(rows) + 1 - len(rows)
    print(f"{guarantee:>14}: {len(rows)} rows, {doubled} of them again, {missing} missing")

rows = after["exactly-once"]
assert set(rows.values()) == {1}, "a row is there twice"
assert sorted(rows) == list(range(len(rows))), "a row is missing"
assert len(rows) > before["exactly-once"]

# COMMAND ----------

# MAGIC %md
# MAGIC If the driver died in the middle of a micro-batch, the topic with `at-least-once` has some rows twice. The topic with
# MAGIC `exactly-once` has each row once. No row is missing. The topics have different numbers of rows, because each query has
# MAGIC its own speed. Another run of the notebook prints other numbers, because the moment of the kill is random.
# MAGIC
# MAGIC The driver records its decisions to commit in a compacted topic, `__kprod_commits`. The command `kprod txn describe`
# MAGIC (extra `cli`) shows the decisions and the transactions. Delivery guarantees describes
# MAGIC the promise. How to write exactly once has all recipes.
# MAGIC
# MAGIC The next cell ends a Kafka that this notebook has started.
