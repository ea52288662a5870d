"""Merges a metadata response into the known cluster (Java's ``MetadataSnapshot.mergeWith``).

Owns: the choice of the topics and leaders of a response that are applied. ``metadata.py`` calls
this module under its lock. Never: state, waiters, the time of an update.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Cluster, Node, PartitionInfos, TopicPartition
from spark_kafka_sink.protocol.metadata import MetadataResponse, TopicMetadata
from spark_kafka_sink.protocol.wire import error_of


@dataclass(frozen=True, slots=True)
class Merged:
    """The merged metadata.

    ``update_again`` is true if the response has a retriable error, so that another update is
    needed. ``answered`` are the topics in use that the response contains.
    """

    cluster: Cluster
    errors: dict[str, ErrorCode]
    update_again: bool
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
    """Merges a metadata response into the cluster ``old``.

    ``epochs`` has the last known leader epoch of each partition by topic, or -1 if no epoch is
    known. It is updated in place. ``partial`` is true if the request did not name all topics in
    use. Topics that such a response omits do not change.
    """
    topics = dict(old.topics) if partial else {}
    ids = dict(old.topic_ids)
    errors = dict(old_errors) if partial else {}
    answered = []
    update_again = False
    for topic in response.topics:
        name = topic.name
        if name not in in_use:
            continue
        answered.append(name)
        errors.pop(name, None)
        if topic.error is not ErrorCode.NONE:
            errors[name] = topic.error
            topics.pop(name, None)
            update_again = update_again or topic.error.retriable
            continue
        if len(topic.partitions) == 0:
            # It exists and can't be written to: treated as still being created.
            topics.pop(name, None)
            update_again = True
            continue
        if any(error_of(code).retriable for _, code in topic.partitions.errors()):
            update_again = True
        topics[name] = _partitions(topic, old, ids, epochs)
    cluster = Cluster(
        response.cluster_id,
        response.brokers,
        topics,
        {t: i for t, i in ids.items() if t in topics},
        response.controller,
    )
    return Merged(cluster, errors, update_again, tuple(answered))


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
            # The broker's metadata is outdated: keep the newer leaders.
            infos = list(found)
            for number in stale:
                infos[number] = before[number]
                now[number] = known[number]
            found = PartitionInfos.of(name, infos)
        now.extend(known[len(now) :])
    epochs[name] = now
    return found


def last_leaders(
    new: Cluster, old: Cluster, before: Mapping[TopicPartition, Node]
) -> dict[TopicPartition, Node]:
    """The last known leader of each partition whose leader is not among the brokers of ``new``, for
    messages.

    ``before`` is the result for the cluster ``old``.
    """
    found: dict[TopicPartition, Node] = {}
    for partitions in new.topics.values():
        lost = partitions.leaders() - new.nodes.keys()
        if not lost:
            continue
        for number in range(len(partitions)):
            if partitions.leader(number) not in lost:
                continue
            tp = partitions.tps[number]
            info = old.partition(tp)
            last = before.get(tp) if info is None else old.nodes.get(info.leader, before.get(tp))
            if last is not None:
                found[tp] = last
    return found


def _stale(epochs: array[int], known: array[int]) -> Iterator[int]:
    """The partitions whose leader epoch is lower than the known epoch."""
    return (n for n, (epoch, last) in enumerate(zip(epochs, known)) if 0 <= epoch < last)  # noqa: B905 - the shorter one counts
