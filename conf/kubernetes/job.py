"""Writes Parquet files to a topic, each row once: job.py PATH TOPIC DAY."""

import sys

from pyspark.sql import SparkSession

from spark_kafka_sink import register

path, topic, day = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
register(spark)
rows = spark.read.parquet(path).select("key", "value")
(
    rows.write.format("kprod")
    .option("kafka.bootstrap.servers", "kafka-bootstrap:9093")
    .option("kafka.security.protocol", "SASL_SSL")
    .option("kafka.sasl.mechanism", "SCRAM-SHA-512")
    .option("kafka.sasl.username", "spark")
    .option("kafka.sasl.password", "${file:/etc/secrets/kafka/password}")
    .option("kafka.ssl.truststore.type", "PEM")
    .option("kafka.ssl.truststore.location", "/etc/secrets/kafka/ca.pem")
    .option("topic", topic)
    .option("deliveryGuarantee", "exactly-once")
    .option("txnAppId", f"kafka-export-{day}")
    .option("txnVersion", "1")
    .save()
)
