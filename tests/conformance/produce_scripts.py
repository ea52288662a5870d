"""Scripts of Produce: sequence numbers, and batches that a broker refuses."""

from __future__ import annotations

from typing import Any

from tests.conformance.raw_batch import BASE_MS, CONTROL, batch
from tests.conformance.script import Script


def sequences(s: Script) -> None:
    """Every situation that a sequence number can be in."""
    topic = s.topic("sequences", 6)
    own = s.init("a producer id without a transactional id", None)

    def produce(name: str, sequence: int, count: int = 1, partition: int = 0, **more: Any) -> None:
        who = more.pop("who", own)
        s.produce(name, topic, batch(count, who, sequence), partition=partition, **more)

    produce("the first batch", 0, 2)
    produce("the next", 2)
    produce("the last again", 2)
    produce("the first again", 0, 2)
    produce("a part of the first", 0, 1)
    produce("a gap", 5)
    produce("what filled the gap is not there", 4)
    for i in range(3, 7):
        produce(f"sequence {i}", i)
    produce("five batches ago", 2)
    produce("six batches ago", 0, 2)
    produce("four batches ago", 3)
    produce("a producer nobody knows begins at 100", 100, partition=1)
    produce("and goes on", 101, partition=1)
    produce("and not back at 0", 0, partition=1)
    produce("near the end of the sequences", 2**31 - 2, 3, partition=2)
    produce("behind the wrap", 1, partition=2)
    produce("the wrapped batch again", 2**31 - 2, 3, partition=2)
    produce("exactly at the end", 2**31 - 1, partition=3)
    produce("0 is next", 0, partition=3)
    newer = (own[0], own[1] + 1)
    produce("a new epoch not at 0", 3, who=newer)
    produce("a new epoch at 0", 0, who=newer)
    produce("the old epoch", 7)
    produce("the old epoch's duplicate", 6)
    produce("a new epoch for another partition that nobody knows", 9, who=newer, partition=4)
    produce("a producer id without an epoch's sequence", -1, partition=5)
    s.produce("without a producer id", topic, batch(3), partition=0)
    s.producers("what is remembered", topic)
    s.offsets("the end", topic, -1)
    s.fetch("all batches", topic)


def batches(s: Script) -> None:
    """Batches that a broker refuses, and how it says so."""
    topic = s.topic("batches")
    s.produce("a good one", topic, batch(2))
    s.produce("a wrong checksum", topic, batch(crc=1))
    s.produce("magic 1", topic, batch(magic=1))
    s.produce("magic 3", topic, batch(magic=3))
    s.produce("more records said than there are", topic, batch(2, count=3))
    s.produce("last offset delta too high", topic, batch(2, last=2))
    s.produce("both too high", topic, batch(2, count=3, last=2))
    s.produce("both too low", topic, batch(3, count=2, last=1))
    s.produce("no records", topic, batch([]))
    s.produce("a count of 0", topic, batch(1, count=0, last=-1))
    s.produce("a base offset", topic, batch(base_offset=5))
    s.produce("nothing", topic, b"")
    s.produce("cut off", topic, batch(2)[:-1])
    s.produce("shorter than a header", topic, batch()[:60])
    s.produce("two batches", topic, batch() + batch())
    s.produce("a control batch", topic, batch(attributes=CONTROL))
    s.produce("a record's length runs out", topic, batch(records=b"\x7e" + b"\0" * 6))
    s.produce("from the year 5138", topic, batch(timestamp=100_000_000_000_000))
    s.produce("zstd in version 6", topic, batch(attributes=4), version=6)
    s.produce("transactional without a transactional id", topic, batch(1, (5, 0), 0, attributes=16))
    s.produce("transactional without a producer", topic, batch(attributes=16), tid="nobody")
    small = s.topic("small", max_message_bytes="100")
    s.produce("as large as allowed", small, batch([_of_size(100)]))
    s.produce("one byte too large", small, batch([_of_size(101)]))
    compacted = s.topic("compacted", cleanup_policy="compact")
    s.produce("keys", compacted, batch(2))
    s.produce("no keys", compacted, batch(2, key=None))
    poor = s.topic("poor", min_insync_replicas="2")
    s.produce("acks=all with too few replicas", poor, batch())
    s.produce("acks=1 with too few replicas", poor, batch(), acks=1)
    s.produce("acks=2", topic, batch(), acks=2)
    s.produce("acks=0", topic, batch(), acks=0)
    s.offsets("acks=0 was taken", topic, -1)
    s.produce("a partition that is not there", topic, batch(), partition=7)
    s.produce("a topic that is not there", "absent", batch())
    for version in (3, 4, 5, 7, 8, 9, 10, 11, 12):
        s.produce(f"version {version}", topic, batch(), version=version)
    stamped = s.topic("stamped", message_timestamp_type="LogAppendTime")
    s.produce("log append time", stamped, batch(timestamp=100_000_000_000_000))
    s.offsets("the begin", topic, -2)
    s.offsets("from a time", topic, BASE_MS)
    s.offsets("from a later time", topic, BASE_MS + 1)
    s.offsets("the highest time", topic, -3)
    s.offsets("of a topic that is not there", "absent", -1)
    s.fetch("beyond the end", topic, 10_000)
    s.fetch("of a topic that is not there", "absent")


def _of_size(size: int) -> str:
    return "x" * (size - len(batch([""])))
