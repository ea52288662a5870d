"""A program: a stream of Avro whose schema registry dies, and comes back empty.

Its arguments are the bootstrap servers, two topics and a directory. It prints a line of JSON: what
became of a stream that needs a new schema, without the registry and with it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_sink import register
from spark_kafka_sink.local_kafka import SchemaRegistry

COLUMNS = "id bigint, name string"


def main() -> None:
    bootstrap, topic, new_topic, directory = sys.argv[1:]
    home = Path(directory)
    (home / "in").mkdir()
    # Each micro-batch is planned in a process of its own, which has kept no answer.
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.worker.reuse", "false").getOrCreate()
    register(spark)
    rows = spark.readStream.schema(COLUMNS).json(str(home / "in"))
    options = {
        "kafka.bootstrap.servers": bootstrap, "kafka.max.block.ms": "20000",
        "valueColumns": "*", "valueFormat": "avro", "auto.register.schemas": "true",
    }  # fmt: skip

    def add(number: int) -> None:
        part = home / f"{number}.json"
        part.write_text(json.dumps({"id": number, "name": f"row {number}"}))
        part.rename(home / "in" / part.name)

    def start(frame: DataFrame, name: str, url: str) -> StreamingQuery:
        writer = frame.writeStream.format("kprod").options(**options).option("topic", name)
        writer = writer.option("checkpointLocation", str(home / f"of {name}"))
        return writer.option("schema.registry.url", url).start()

    def outcome(query: StreamingQuery) -> str:
        try:
            query.processAllAvailable()
        except Exception as error:
            return str(error)
        finally:
            query.stop()
        return ""

    def go_on(*numbers: int) -> None:
        for number in numbers:
            add(number)
            query.processAllAvailable()

    with SchemaRegistry() as registry:
        url, port = registry.url, int(registry.url.split(":")[2].partition("/")[0])
        query = start(rows, topic, url)
        go_on(0, 1)
    go_on(2, 3, 4)
    other = rows.withColumnRenamed("name", "other")
    told = {"without": outcome(start(other, new_topic, url))}
    with SchemaRegistry(port=port):
        go_on(5)
        told["with"] = outcome(start(other, new_topic, url))
    query.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
