"""The options errors.* with their defaults."""

from __future__ import annotations

from spark_kafka_sink.config.sink_config import DeadLetterOptions, SinkConfig


def letter_options(topic: str) -> DeadLetterOptions:
    """errors.tolerance=all with this topic."""
    given = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic}
    found = SinkConfig.parse({"kafka.bootstrap.servers": "b:1", **given}).dead_letters
    assert found is not None
    return found
