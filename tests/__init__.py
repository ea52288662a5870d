"""The tests of spark_kafka_sink. A package, so that `tests.…` can't mean anybody else's."""
