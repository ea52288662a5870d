"""Runs ``kprod`` as ``python -m spark_kafka_sink.cli``."""

from spark_kafka_sink.cli import main

main()
