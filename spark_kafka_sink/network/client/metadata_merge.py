"""Merges a Metadata response into the known metadata (Java's ``MetadataSnapshot.mergeWith``).

:func:`merge` decides which topics and leaders of a response are used. ``metadata.py`` calls this
function under the lock of ``Metadata``, stores the result, wakes the waiting threads, and computes
the time of the next update.
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
    """The result of :func:`merge`.

    ``update_again`` is True if the response has a retriable error, so that another update is
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
    """Merges a Metadata response into the cluster ``old``.

    * ``old_errors``: the errors of topics in earlier responses.
    * ``epochs``: for each topic, the last known leader epoch of each partition. -1 means unknown.
      This function updates ``epochs`` in place.
    * ``in_use``: the topics in use. Other topics of the response are ignored.
    * ``partial``: true if only some of the topics in use were requested. Then the topics that are
      missing in the response are kept.

    If the response has a lower leader epoch than ``epochs`` for a partition, the known leader is
    kept. If the id of the topic has changed, the leader of the response is used in every case.
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
    """Returns the last known leader of each partition of ``new`` whose leader is unknown: the
    partition has no leader, or the leader is not among the brokers. Error messages use the result.

    ``old`` is the cluster before ``new``. ``before`` is the result of this function for ``old``,
    and is used if the leader of a partition is unknown in ``old``, too.
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
    """The numbers of the partitions whose leader epoch in ``epochs`` is lower than in ``known``."""
    return (n for n, (epoch, last) in enumerate(zip(epochs, known)) if 0 <= epoch < last)  # noqa: B905 - the shorter one counts
