"""The peers' jars: Kafka's own tools, Spark's Kafka connector with what it needs, Delta Lake.

Fetched through the resolver of ``local_kafka`` (Maven, or PySpark's Ivy), into the same cache.
"""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.local_kafka.distribution import Coordinate, cache_lock, fetch
from spark_kafka_sink.local_kafka.installation import prepare
from spark_kafka_sink.local_kafka.java import find_java

#: The connector of the PySpark in the dev group. Its newest token provider on Maven Central is
#: 4.0.0; each jar comes alone, because the connector's own list names versions that are not there.
CONNECTOR = (
    Coordinate("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
    Coordinate("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", alone=True),
    Coordinate("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
    Coordinate("org.apache.commons", "commons-pool2", "2.12.0", alone=True),
)
#: Spark's to_avro and from_avro. 4.2.0 is not on Maven Central; this one runs with Spark 4.2.0.
AVRO = (Coordinate("org.apache.spark", "spark-avro_2.13", "4.0.1", alone=True),)
#: Delta Lake for the PySpark in the dev group. Spark has the rest of what it needs.
DELTA = (
    Coordinate("io.delta", "delta-spark_4.2_2.13", "4.4.0", alone=True),
    *(
        Coordinate("io.delta", name, "4.4.0", alone=True)
        for name in (
            "delta-storage",
            "delta-kernel-api",
            "delta-kernel-defaults",
            "delta-kernel-unitycatalog",
        )
    ),
    Coordinate("io.unitycatalog", "unitycatalog-client", "0.6.0", alone=True),
)


def _jars(name: str, coordinates: tuple[Coordinate, ...]) -> list[Path]:
    with cache_lock() as directory:
        return sorted((fetch(find_java(), directory, name, coordinates) / "jars").glob("*.jar"))


def classpath() -> str:
    """Kafka's server, tools and clients."""
    return prepare().distribution.class_path


def connector_jars() -> str:
    """For ``spark.jars``."""
    return ",".join(map(str, _jars("bench-connector", CONNECTOR)))


def avro_jars() -> str:
    """For ``spark.jars``."""
    return ",".join(map(str, _jars("bench-avro", AVRO)))


def delta_jars() -> str:
    """For ``spark.jars``."""
    return ",".join(map(str, _jars("bench-delta", DELTA)))
