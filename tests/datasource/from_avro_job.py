"""Rows that this sink writes as Avro, read by Spark's own ``from_avro``, and the other way round:
``python -m tests.datasource.from_avro_job BOOTSTRAP REGISTRY JARS TOPIC``. Prints what differs.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from spark_kafka_sink import register

ROWS = (
    "id", "CAST(id AS TINYINT) AS tiny", "CAST(-id AS SMALLINT) AS small",
    "CAST(id AS INT) AS whole",
    "IF(id % 3 = 0, NULL, concat('n\u00e4me ', id)) AS name", "id % 2 = 0 AS flag",
    "CAST(id / 7 AS FLOAT) AS single", "IF(id = 5, CAST('NaN' AS DOUBLE), id / 7) AS double",
    "CAST(id * 1000003 - 7000000 AS DECIMAL(12, 3)) AS small_amount",
    "CAST(concat('-', repeat('9', 30), '.', id % 10) AS DECIMAL(38, 4)) AS amount",
    "CAST(concat('b', id) AS BINARY) AS data", "date_add(DATE'1969-12-01', CAST(id AS INT)) AS day",
    "timestamp_micros(id * 1000003 - 40000000) AS at",
    "CAST(timestamp_micros(id * 1000003 - 40000000) AS TIMESTAMP_NTZ) AS local",
    "IF(id % 4 = 0, NULL, array(id, NULL, -id)) AS list",
    # One entry: Java's Avro writes several in the order of a HashMap.
    "IF(id % 5 = 0, NULL, map('k', IF(id % 2 = 0, NULL, id))) AS map",
    "IF(id % 6 = 0, NULL, named_struct('a', id, 'b', IF(id % 7 = 0, NULL, 'x'))) AS struct",
    "array(named_struct('s', named_struct('t', id)), NULL) AS deep",
    "map('k', array(named_struct('v', IF(id % 2 = 0, NULL, id)))) AS deeper",
)  # fmt: skip


def main(bootstrap: str, registry: str, jars: str, topic: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars", jars).config("spark.driver.memory", "1g")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    register(spark)
    rows = spark.range(0, 100, 1, 2).selectExpr(*ROWS)
    kafka = {"kafka.bootstrap.servers": bootstrap}
    avro = {
        "valueColumns": "*", "valueFormat": "avro", "schema.registry.url": registry,
        "auto.register.schemas": "true",
    }  # fmt: skip
    rows.write.format("kprod").options(**kafka, **avro, topic=topic).save()
    with urllib.request.urlopen(f"{registry}/subjects/{topic}-value/versions/latest") as answer:
        schema = json.load(answer)["schema"]
    read = spark.read.format("kafka").options(**kafka, subscribe=topic).load()
    payload = F.substring("value", 6, 1 << 30)
    found = read.select(from_avro(payload, schema).alias("p")).select("p.*")
    text = [F.to_json(F.struct("*")).alias("row")]  # maps are not compared by exceptAll
    print(
        "read", found.count(), "differ", rows.select(*text).exceptAll(found.select(*text)).count()
    )
    theirs = rows.select("id", to_avro(F.struct("*"), schema).alias("theirs"))
    ours = read.select(from_avro(payload, schema)["id"].alias("id"), payload.alias("ours"))
    print("bytes differ", theirs.join(ours, "id").where("theirs <> ours").count())
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
