"""What a metadata answer makes of what was known (Java's ``MetadataSnapshot.mergeWith``).

Owns: which of an answer's topics and leaders count. ``metadata.py`` calls it under its lock. Never:
state of its own, who waits, when to ask.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfos
from spark_kafka_sink.protocol.metadata_response import MetadataResponse, TopicMetadata
from spark_kafka_sink.protocol.wire import error_code


@dataclass(frozen=True, slots=True)
class Merged:
    """What is known now. ``ask_again``: something was told that passes, so it is not the last word;
    ``answered``: the topics in use that the answer told of.
    """

    cluster: Cluster
    errors: dict[str, ErrorCode]
    ask_again: bool
    answered: tuple[str, ...]


def merge(
    response: MetadataResponse,
    old: Cluster,
    old_errors: Mapping[str, ErrorCode],
    epochs: dict[str, array[int]],
    *,
    in_use: Container[str],
    partial: bool,
) -> Merged:
    """``epochs`` has the last epoch known of each partition's leader by topic, -1 where none is;
    it is brought up to date. A ``partial`` answer leaves topics alone that it does not name.
    """
    topics = dict(old.topics) if partial else {}
    ids = dict(old.topic_ids)
    errors = dict(old_errors) if partial else {}
    answered = []
    ask_again = False
    for topic in response.topics:
        name = topic.name
        if name not in in_use:
            continue
        answered.append(name)
        errors.pop(name, None)
        if topic.error is not ErrorCode.NONE:
            errors[name] = topic.error
            topics.pop(name, None)
            ask_again = ask_again or topic.error.retriable
            continue
        if len(topic.partitions) == 0:
            # It is there and can't be written to: as if it were still being made.
            topics.pop(name, None)
            ask_again = True
            continue
        if any(error_code(code).retriable for _, code in topic.partitions.errors()):
            ask_again = True
        topics[name] = _partitions(topic, old, ids, epochs)
    cluster = Cluster(
        response.cluster_id,
        response.brokers,
        topics,
        {t: i for t, i in ids.items() if t in topics},
        response.controller,
    )
    return Merged(cluster, errors, ask_again, tuple(answered))


def _partitions(
    topic: TopicMetadata, old: Cluster, ids: dict[str, bytes], epochs: dict[str, array[int]]
) -> PartitionInfos:
    name, found = topic.name, topic.partitions
    known_id = ids.get(name)
    recreated = None not in (known_id, topic.topic_id) and known_id != topic.topic_id
    if topic.topic_id is not None:
        ids[name] = topic.topic_id
    now = found.leader_epochs()
    known = None if recreated else epochs.get(name)
    if known is not None:
        before = old.topics.get(name, ())
        stale = array("i", _stale(now, known[: len(before)]))
        if stale:
            # A broker that lags behind: its leaders are some that we know to be gone.
            infos = list(found)
            for number in stale:
                infos[number] = before[number]
                now[number] = known[number]
            found = PartitionInfos.of(name, infos)
        now.extend(known[len(now) :])
    epochs[name] = now
    return found


def _stale(epochs: array[int], known: array[int]) -> Iterator[int]:
    """The partitions whose leader's epoch is lower than the one that is known."""
    return (n for n, (epoch, last) in enumerate(zip(epochs, known)) if 0 <= epoch < last)  # noqa: B905 - the shorter one counts
