"""``python -m spark_kafka_sink.cli`` is ``kprod``."""

from spark_kafka_sink.cli import main

main()
