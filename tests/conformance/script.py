"""One script of raw requests, sent to a FakeCluster or to real brokers.

A script (a function of ``produce_scripts.py`` and its like) gets a :class:`Script` and gives it its
steps; what a step found is compared between the worlds. Requests are written and answers read by
kio. Producer ids are numbered by their first appearance, because brokers give what they like.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

import crc32c

from spark_kafka_sink.base.errors import ErrorCode
from tests.conformance.raw_batch import CONTROL
from tests.conformance.worlds import FakeWorld, RealWorld, World
from tests.fakes.fake_cluster.codec import NAMES, Answer, read, response_entity, write
from tests.waiting import PATIENCE

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND, VERSIONS = 0, 1, 2, 3, 10, 18
CREATE, INIT, ADD, END, CONFIGS, PRODUCERS, TRANSACTIONS, LIST = 19, 22, 24, 26, 32, 61, 65, 66
#: The timeout of a transaction that is to time out; its last request comes earlier.
SHORT_MS = int(1_500 * PATIENCE)
#: What passes by itself.
PASSING = {"CONCURRENT_TRANSACTIONS", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}


class Script:
    """Sends requests to one world and keeps the steps."""

    def __init__(self, world: World, *, retries: int = 3000) -> None:
        self.world = world
        self.steps: list[tuple[str, Any]] = []
        self._producers: dict[int, str] = {-1: "none"}
        #: Where transactional calls go.
        self.home = 1
        self._retries = retries
        self._correlation = 0

    def step(self, name: str, found: Any) -> Any:
        self.steps.append((name, found))
        return found

    def ask(
        self,
        api: int,
        version: int,
        *,
        node: int = 1,
        answered: bool = True,
        **fields: Any,
    ) -> Any:
        """The answer's entity; None for a closed connection. Structs of the request are dicts."""
        self._correlation += 1
        body = Answer(NAMES[api], version, "request")(**fields)
        head = struct.pack(">hhih", api, version, self._correlation, 1) + b"s"
        frame = head + (b"\0" if type(body).__flexible__ else b"") + write(body)
        answer = self.world.exchange(node, frame, answered=answered)
        if answer is None:
            return None
        assert int.from_bytes(answer[:4], "big") == self._correlation
        entity = response_entity(api, version)
        skip = 5 if entity.__flexible__ and api != VERSIONS else 4
        return read(entity, answer[skip:])

    def settled(
        self,
        asked: Callable[[], Any],
        error: Callable[[Any], str],
        passing: AbstractSet[str] = PASSING,
    ) -> Any:
        """The first answer that does not pass by itself."""
        for _ in range(self._retries):
            found = asked()
            if error(found) not in passing:
                return found
            self.world.pause()
        raise AssertionError(f"it never settled: {error(found)}")

    def producer(self, producer_id: int) -> str:
        return self._producers.setdefault(producer_id, f"producer {len(self._producers)}")

    # -- the calls --

    def topic(self, name: str, partitions: int = 1, replication: int = 1, **configs: str) -> str:
        answer = self.create(name, partitions, replication, configs)
        assert int(answer.error_code) == 0, answer
        while True:  # until every leader is known
            found = self.metadata([name], 9)
            parts = found.topics[0].partitions
            if len(parts) == partitions and not any(int(p.error_code) for p in parts):
                break
            self.world.pause()
        for part in found.topics[0].partitions:  # and they know it themselves
            leader, index = int(part.leader_id), part.partition_index
            while int(self._list(name, -1, 0, index, leader).error_code):
                self.world.pause()
        return name

    def create(
        self,
        name: str,
        partitions: int,
        replication: int,
        configs: Mapping[str, str],
        *,
        validate: bool = False,
    ) -> Any:
        """What CreateTopics says of one topic."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication,
            "assignments": (),
            "configs": [{"name": k.replace("_", "."), "value": v} for k, v in configs.items()],
        }
        answer = self.ask(CREATE, 7, topics=[topic], timeout=10_000, validate_only=validate)
        return answer.topics[0]

    def metadata(self, names: Iterable[str] | None, version: int, *, node: int = 1) -> Any:
        return self.ask(
            METADATA,
            version,
            node=node,
            topics=None if names is None else [{"name": n, "topic_id": None} for n in names],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )

    def produce_at(
        self,
        node: int,
        topic: str,
        version: int,
        data: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        tid: str | None = None,
    ) -> Any:
        """What Produce says of one partition; None without an answer."""
        piece = {"index": partition, "records": data}
        answer = self.ask(
            PRODUCE,
            version,
            node=node,
            answered=acks != 0,
            transactional_id=tid,
            acks=acks,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [piece]}],
        )
        return None if answer is None else answer.responses[0].partition_responses[0]

    def produce(
        self,
        name: str,
        topic: str,
        data: bytes,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 12,
        tid: str | None = None,
        node: int = 1,
        settle: bool = True,
    ) -> Any:
        """One step: error, base offset, log start, the guilty records, and any leader hint."""

        def once() -> Any:
            return self.produce_at(
                node, topic, version, data, partition=partition, acks=acks, tid=tid
            )

        found = self.settled(once, lambda p: "" if p is None or not settle else error_name(p))
        if found is None:
            return self.step(name, "closed")
        guilty = [r.batch_index for r in getattr(found, "record_errors", ())]
        hint = getattr(found, "current_leader", None)
        told = (None if hint is None else int(hint.leader_id)) if node == 1 else "a hint"
        return self.step(
            name,
            (error_name(found), found.base_offset, getattr(found, "log_start_offset", 0), guilty)
            + ((told,) if told != "a hint" else ()),
        )

    def found(self, key: str, kind: int = 1, version: int = 4, node: int = 1) -> Any:
        """FindCoordinator's answer for ``key``; ``kind`` 1 is a transactional id, 0 a group."""
        answer = self.ask(FIND, version, node=node, key=key, key_type=kind, coordinator_keys=(key,))
        return answer.coordinators[0] if version >= 4 else answer

    def described(self, tid: str, node: int) -> Any:
        """The answer of DescribeTransactions for ``tid``."""
        answer = self.ask(TRANSACTIONS, 0, node=node, transactional_ids=(tid,))
        return answer.transaction_states[0]

    def coordinator(self, tid: str) -> int:
        """The node id; asking has a young cluster make the place for transactions."""
        node = int(self.settled(lambda: self.found(tid), error_name).node_id)
        # It is told to be the coordinator a moment before it knows.
        young = PASSING | {"NOT_COORDINATOR"}
        self.settled(lambda: self.described(tid, node), error_name, young)
        return node

    def init(
        self,
        name: str,
        tid: str | None,
        *,
        timeout: int = 60_000,
        own: tuple[int, int] = (-1, -1),
        version: int = 5,
        settle: bool = True,
    ) -> tuple[int, int]:
        def once() -> Any:
            return self.ask(
                INIT,
                version,
                node=self.home,
                transactional_id=tid,
                transaction_timeout=timeout,
                producer_id=own[0],
                producer_epoch=own[1],
            )

        found = self.settled(once, error_name) if settle else once()
        told = (error_name(found), self.producer(found.producer_id), found.producer_epoch)
        self.step(name, told)
        return found.producer_id, found.producer_epoch

    def add(
        self,
        name: str,
        tid: str,
        own: tuple[int, int],
        partitions: dict[str, list[int]],
        *,
        version: int = 3,
        settle: bool = True,
    ) -> None:
        def once() -> Any:
            answer = self.ask(
                ADD,
                version,
                node=self.home,
                v3_and_below_transactional_id=tid,
                v3_and_below_producer_id=own[0],
                v3_and_below_producer_epoch=own[1],
                v3_and_below_topics=[{"name": t, "partitions": p} for t, p in partitions.items()],
            )
            topics = answer.results_by_topic_v3_and_below
            return {
                (t.name, p.partition_index): ErrorCode(int(p.partition_error_code)).name
                for t in topics
                for p in t.results_by_partition
            }

        def first(errors: dict[tuple[str, int], str]) -> str:
            return next(iter(errors.values()), "") if settle else ""

        self.step(name, sorted(self.settled(once, first).items()))

    def end(
        self,
        name: str,
        tid: str,
        own: tuple[int, int],
        *,
        commit: bool,
        version: int,
        settle: bool = True,
    ) -> tuple[int, int]:
        def once() -> Any:
            return self.ask(
                END,
                version,
                node=self.home,
                transactional_id=tid,
                producer_id=own[0],
                producer_epoch=own[1],
                committed=commit,
            )

        found = self.settled(once, error_name) if settle else once()
        pid, epoch = getattr(found, "producer_id", -1), getattr(found, "producer_epoch", -1)
        self.step(name, (error_name(found), self.producer(pid), epoch))
        return pid, epoch

    def state(self, name: str, tid: str, *, until: str | None = None) -> Any:
        """DescribeTransactions; ``until`` that state is reached."""
        for _ in range(self._retries):
            found = self.described(tid, self.home)
            if until is None or found.transaction_state == until:
                break
            self.world.pause()
        else:
            raise AssertionError(f"{tid} is {found.transaction_state}, never {until}")
        topics = sorted((t.topic, sorted(t.partitions)) for t in found.topics)
        return self.step(
            name,
            (
                error_name(found),
                found.transaction_state,
                self.producer(-1 if int(found.error_code) else found.producer_id),
                found.producer_epoch,
                topics,
                found.transaction_start_time > 0,
            ),
        )

    def _list(
        self, topic: str, timestamp: int, isolation: int, partition: int = 0, node: int = 1
    ) -> Any:
        piece = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": timestamp}
        answer = self.ask(
            LIST_OFFSETS,
            7,
            node=node,
            replica_id=-1,
            isolation_level=isolation,
            topics=[{"name": topic, "partitions": [piece]}],
            timeout=1000,
        )
        return answer.topics[0].partitions[0]

    def offsets(self, name: str, topic: str, timestamp: int, isolation: int = 0) -> None:
        found = self._list(topic, timestamp, isolation)
        self.step(name, (error_name(found), found.timestamp, found.offset))

    def fetch(self, name: str, topic: str, offset: int = 0, isolation: int = 0) -> None:
        """Offsets, kinds and producers of all batches, and what was aborted.

        Asked until nothing follows: how many batches come at a time is a broker's own business.
        """
        batches: list[Any] = []
        aborted: set[tuple[str, int]] = set()
        while True:
            found = self._fetch(topic, offset, isolation)
            data = bytes(found.records or b"")
            aborted |= {
                (self.producer(a.producer_id), a.first_offset)
                for a in found.aborted_transactions or ()
            }
            if not data:
                break
            while data:
                base, size = struct.unpack_from(">qi", data)
                attributes, last = struct.unpack_from(">hi", data, 21)
                pid, epoch, sequence, count = struct.unpack_from(">qhii", data, 43)
                kind = _marker(data, size) if attributes & CONTROL else ""
                batches.append((base, attributes, self.producer(pid), epoch, sequence, count, kind))
                # The CRC is right, whatever the broker wrote into the header.
                assert crc32c.crc32c(data[21 : 12 + size]) == int.from_bytes(data[17:21], "big")
                data = data[12 + size :]
                offset = base + last + 1
        told = (error_name(found), found.high_watermark, found.last_stable_offset)
        self.step(name, (*told, batches, sorted(aborted)))

    def _fetch(self, topic: str, offset: int, isolation: int) -> Any:
        piece = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}
        answer = self.ask(
            FETCH,
            11,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=10**6,
            isolation_level=isolation,
            topics=[{"topic": topic, "partitions": [piece]}],
            forgotten_topics_data=(),
        )
        return answer.responses[0].partitions[0]

    def listed(self, name: str, prefix: str, version: int, **filters: Any) -> None:
        """ListTransactions: the ids of that beginning, and their states."""
        asked: dict[str, Any] = {"state_filters": ()} | filters
        found = self.settled(lambda: self.ask(LIST, version, node=self.home, **asked), error_name)
        told = [(t.transactional_id, t.transaction_state) for t in found.transaction_states]
        ours = sorted((i, state) for i, state in told if i.startswith(prefix))
        self.step(name, (error_name(found), ours, sorted(found.unknown_state_filters)))

    def producers(self, name: str, topic: str, partition: int = 0) -> None:
        asked = [{"name": topic, "partition_indexes": (partition,)}]
        found = self.ask(PRODUCERS, 0, topics=asked).topics[0].partitions[0]
        producers = sorted(
            (
                self.producer(p.producer_id),
                p.producer_epoch,
                p.last_sequence,
                p.current_txn_start_offset,
                p.coordinator_epoch >= 0,
            )
            for p in found.active_producers
        )
        self.step(name, (error_name(found), producers))


def _marker(data: bytes, size: int) -> str:
    """What a control batch's first record says: its key is a version and a type."""
    at = data.index(b"\x08\0\0", 61, 12 + size)  # a key of four bytes, version 0
    return {0: "abort", 1: "commit"}[int.from_bytes(data[at + 3 : at + 5], "big")]


def error_name(entity: Any) -> str:
    return ErrorCode(int(entity.error_code)).name


Tell = Callable[[Script], None]


def compare(tell: Tell, real: RealWorld, fake: FakeWorld, steps: int) -> None:
    ours, theirs = Script(fake), Script(real)
    tell(theirs)
    tell(ours)
    pairs = zip(ours.steps, theirs.steps, strict=True)
    others = [f"{a[0]}: the broker {b[1]}, the fake {a[1]}" for a, b in pairs if a != b]
    assert not others, "\n".join(others)
    assert len(ours.steps) >= steps
