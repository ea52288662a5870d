"""The options errors.* with their defaults, and a task's dead letters with these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import DeadLetterOptions
from spark_kafka_sink.datasource.checks.topic_checks import TopicsNow
from spark_kafka_sink.datasource.write.dead_letters import DeadLetters
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.letters.letter_writer import LetterWriter
from spark_kafka_sink.records.letters.row_limits import RowLimits


def letter_options(topic: str) -> DeadLetterOptions:
    """errors.tolerance=all with this topic."""
    given = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": topic}
    found = parse_sink_config({"kafka.bootstrap.servers": "b:1", **given}).dead_letters
    assert found is not None
    return found


def dead_letters(
    queue: str,
    config: ProducerConfig,
    topic: str | None = "t",
    *,
    task: int = 7,
    batch_id: int = -1,
    admin: Callable[[], AdminClient] | None = None,
    **options: Any,
) -> DeadLetters:
    """Of a task; its topics have no limits, and none is known to be forbidden."""
    limits = RowLimits(config, TopicLimits())
    wanted = replace(letter_options(queue), **options)
    writer = LetterWriter(wanted, limits, "kprod", task, batch_id)
    topics = TopicsNow(admin or partial(AdminClient, config))
    return DeadLetters(writer, topic, limits, lambda _: {}, topics)
