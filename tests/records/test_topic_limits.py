"""What a topic's configs say of the rows that it takes."""

from __future__ import annotations

import pytest

from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits

ANY = 2**63 - 1
CONFIGS = {
    "max.message.bytes": "20000",
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "7000",
    "message.timestamp.after.max.ms": "3000",
}


@pytest.mark.parametrize(
    ("changed", "limits"),
    [
        ({}, TopicLimits(20_000, 7_000, 3_000, False)),
        # The broker's time replaces that of each record.
        ({"message.timestamp.type": "LogAppendTime"}, TopicLimits(20_000, ANY, ANY, False)),
        ({"cleanup.policy": "compact,delete"}, TopicLimits(20_000, 7_000, 3_000, True)),
        (dict.fromkeys(CONFIGS), TopicLimits(ANY, ANY, ANY, False)),
    ],
    ids=["all", "the broker's time", "compacted", "not to be seen"],
)
def test_limits_are_those_of_the_configs(changed, limits):
    assert TopicLimits.of(CONFIGS | changed) == limits
