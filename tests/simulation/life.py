"""What a seed decides before a life begins: the producer's options, its rows, how bad the world is.

A :class:`Life` is a value: printed, it is the script of a failure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.seeded_cluster import ClusterFaults, Sick


@dataclass(frozen=True)
class Send:
    """``rows`` rows in one call, or each in its own (``send``); ``topics`` are chosen of, row by
    row.
    """

    rows: int
    topics: tuple[str, ...]
    keyed: bool
    explicit: bool
    size: int
    singly: bool


@dataclass(frozen=True)
class Pause:
    """The writer waits for input so long; ``silent``: without telling the producer."""

    ms: int
    silent: bool = False


@dataclass(frozen=True)
class Flush:
    pass


@dataclass(frozen=True)
class Attempt:
    """The attempt is finished and checked; the next begins. ``park`` between them, so long.

    Of a transactional life: the transaction is committed, or ``aborts``.
    """

    park_ms: int | None
    aborts: bool = False


@dataclass(frozen=True)
class AddPartitions:
    topic: str
    count: int


@dataclass(frozen=True)
class Close:
    """At the end, or in the middle of everything."""

    timeout_ms: int


Action = Send | Pause | Flush | Attempt | AddPartitions | Close


@dataclass(frozen=True)
class Life:
    seed: int
    options: dict[str, str]
    topics: dict[str, int]
    #: Topics that appear only after so many milliseconds.
    late_topics: dict[str, int]
    #: Batches of a topic that are larger are refused.
    too_large: dict[str, int]
    network: NetworkFaults
    cluster: ClusterFaults
    #: After so long the world is perfect; None: never.
    heals_after_ms: int | None
    #: What ApiVersions says of transaction.version, and which APIs are older (key to highest).
    transaction_version: int
    versions: dict[int, int]
    preemption: float
    slow_writer: float
    actions: tuple[Action, ...] = field(default=())
    #: That of rows, all sent singly, which brokers refuse: too large, or of a day in the future.
    invalid: float = 0.0
    sick: Sick | None = None

    @property
    def calm(self) -> bool:
        """Nothing but what is invalid or sick keeps a row from its partition."""
        least = (NetworkFaults(self.network.latency_ms), ClusterFaults(self.cluster.work_ms))
        return (
            (self.network, self.cluster) == least
            and not self.late_topics
            and self.heals_after_ms == self.slow_writer == 0
            and int(self.options["request.timeout.ms"]) > 1_000
        )

    @property
    def ill(self) -> bool:
        return self.invalid > 0 or self.sick is not None

    @property
    def idempotent(self) -> bool:
        return self.options["enable.idempotence"] == "true"

    @property
    def transactional(self) -> bool:
        return "transactional.id" in self.options

    @property
    def acks(self) -> str:
        return self.options["acks"]

    @property
    def idle_ms(self) -> int:
        """What the script itself waits."""
        pauses = sum(action.ms for action in self.actions if isinstance(action, Pause))
        parks = sum(a.park_ms or 0 for a in self.actions if isinstance(a, Attempt))
        return pauses + parks

    @property
    def must_succeed(self) -> bool:
        """Nothing here is a reason to fail: the world heals long before any time-out."""
        return (
            self.heals_after_ms is not None
            and int(self.options["delivery.timeout.ms"]) > 5_000_000
            and self.cluster.refused == 0
            and self.acks == "all"
            and int(self.options["retries"]) > 1000
            and not (self.transactional and self.heals_after_ms + self.idle_ms > 300_000)
            and not any(isinstance(action, Close) for action in self.actions[:-1])
        )

    def __str__(self) -> str:
        lines = [f"seed {self.seed}", f"  must succeed: {self.must_succeed}"]
        lines += [f"  {name}={value}" for name, value in self.options.items()]
        lines += [f"  topics {self.topics}, late {self.late_topics}, too large {self.too_large}"]
        lines += [f"  {self.network}", f"  {self.cluster}"]
        lines += [f"  invalid rows {self.invalid}, {self.sick}"] if self.ill else []
        lines += [f"  transaction version {self.transaction_version}, versions {self.versions}"]
        lines.append(
            f"  heals after {self.heals_after_ms} ms, preemption {self.preemption}, "
            f"slow writer {self.slow_writer}"
        )
        return "\n".join(lines + [f"    {action}" for action in self.actions])


def draw(seed: int) -> Life:
    """The life of ``seed``."""
    fate = random.Random(f"life {seed}")
    mild = fate.choice((0.0, 0.3, 1.0, 1.0, 3.0))

    def some(most: float) -> float:
        """Often none of it, so that single faults are met alone, too."""
        return 0.0 if fate.random() < 0.4 else min(0.5, most * mild * fate.random())

    options = _options(fate)
    short = int(options["delivery.timeout.ms"]) <= 5_000_000
    # A healthy world must answer within request.timeout.ms.
    hasty = int(options["request.timeout.ms"]) < 1_000
    network = NetworkFaults(
        latency_ms=fate.choice((0, 1, 5, 40, 200)) // (20 if hasty else 1),
        spike=some(0.03),
        split=some(0.2),
        cut=some(0.04),
        silent=some(0.5),
        refused=some(0.3),
        slow_connect=some(0.1),
    )
    cluster = ClusterFaults(
        work_ms=fate.choice((0, 1, 10, 100)) // (10 if hasty else 1),
        stall=some(0.01),
        leader_moves=some(0.03),
        broker_stops=some(0.02),
        not_leader=some(0.05),
        not_enough_replicas=some(0.05),
        not_enough_after_append=some(0.06),
        throttle=some(0.05),
        metadata_error=some(0.1),
        coordinator_error=some(0.3),
        coordinator_moves=some(0.05),
        restart=some(0.05),
        refused=some(0.15) if fate.random() < 0.2 else 0.0,
        dead_node=fate.randint(1, 3) if short and fate.random() < 0.4 else 0,
    )
    topics = {f"t{i}": fate.choice((1, 2, 3, 6)) for i in range(fate.randint(1, 3))}
    late = {name: fate.randint(1, 20_000) for name in topics if fate.random() < 0.1}
    too_large = {name: fate.choice((800, 2_000)) for name in topics if fate.random() < 0.3}
    heals = None if short and fate.random() < 0.5 else fate.choice((100, 2_000, 20_000, 200_000))
    life = Life(
        seed,
        options,
        topics,
        late,
        too_large,
        network,
        cluster,
        heals,
        # Protocol 2 is offered by brokers alone that speak Produce v12.
        *fate.choice(((2, {}), (2, {}), (1, {}), (1, {0: 8, 3: 4}), (1, {0: 11, 22: 4}))),
        fate.choice((0.0, 0.02, 0.1, 0.3)),
        fate.choice((0.0, 0.0, 0.0, 0.2)),
        _actions(fate, topics, late, transactional="transactional.id" in options),
    )
    # By a generator of its own, so that the other lives stay as they are.
    return _ill(life, random.Random(f"ills {seed}"))


def _ill(life: Life, fate: random.Random) -> Life:
    """Some lives of single records have records that brokers refuse, or a sick partition."""
    singly = any(isinstance(action, Send) and action.singly for action in life.actions)
    if not singly or not life.idempotent or life.transactional or fate.random() < 0.4:
        return life
    # A failed record fails its attempt, which says it at its end: here there is only one.
    actions: list[Action] = [
        replace(action, singly=True)
        if isinstance(action, Send)
        else Flush()
        if isinstance(action, Attempt)
        else action
        for action in life.actions
    ]
    life = replace(life, actions=tuple(actions), invalid=fate.choice((0.0, 0.02, 0.2, 0.2)))
    if fate.random() < 0.4:
        latency, work = life.network.latency_ms, life.cluster.work_ms
        life = replace(
            life,
            network=NetworkFaults(latency),
            cluster=ClusterFaults(work),
            late_topics={},
            slow_writer=0.0,
            heals_after_ms=0,  # a turn that is taken away costs next to no time either
        )
    if fate.random() < 0.6:
        topic = fate.choice(sorted(life.topics))
        start = fate.choice((0, 10, 1_000))
        sick = Sick(
            TopicPartition(topic, fate.randrange(life.topics[topic])),
            start,
            start + fate.choice((1_000, 40_000, 300_000)),
            fate.choice((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
        )
        life = replace(life, sick=sick)
    return life


def _options(fate: random.Random) -> dict[str, str]:
    idempotent = fate.random() < 0.85
    request_timeout = fate.choice((300, 3_000, 30_000))
    linger = fate.choice((0, 5, 50, 1_000))
    patient = fate.random() < 0.65
    delivery = 100_000_000 if patient else fate.choice((linger + request_timeout, 10_000, 60_000))
    delivery = max(delivery, linger + request_timeout)
    memory = fate.choice((4_000, 20_000, 200_000, 1_000_000))
    backoff = fate.choice((1, 20, 100))
    transactional = idempotent and fate.random() < 0.3
    transaction = {
        "transactional.id": "simulated",
        "transaction.timeout.ms": str(900_000 if patient else fate.choice((20_000, 60_000))),
    }
    return (transaction if transactional else {}) | {
        "bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094",
        "client.id": "simulated",
        "enable.idempotence": str(idempotent).lower(),
        "acks": "all" if idempotent else fate.choice(("all", "1", "0")),
        "batch.size": str(fate.choice((1, 200, 1_000, 16_384))),
        "linger.ms": str(linger),
        "buffer.memory": str(memory),
        "max.request.size": str(fate.choice((1_500, 1_048_576))),
        "max.in.flight.requests.per.connection": str(fate.choice((1, 2, 3, 5))),
        "compression.type": fate.choice(("none", "none", "lz4", "gzip", "snappy", "zstd")),
        "retries": str(2**31 - 1 if patient or fate.random() < 0.5 else fate.choice((1, 3))),
        "request.timeout.ms": str(request_timeout),
        "delivery.timeout.ms": str(delivery),
        "max.block.ms": str(100_000_000 if patient else fate.choice((1_000, 60_000))),
        "retry.backoff.ms": str(backoff),
        "retry.backoff.max.ms": str(max(backoff, fate.choice((100, 1_000)))),
        "reconnect.backoff.ms": str(fate.choice((10, 50))),
        "reconnect.backoff.max.ms": str(fate.choice((50, 1_000))),
        "socket.connection.setup.timeout.ms": str(fate.choice((1_000, 10_000))),
        "metadata.max.age.ms": str(fate.choice((1_000, 300_000))),
    }


def _actions(
    fate: random.Random, topics: dict[str, int], late: dict[str, int], *, transactional: bool
) -> tuple[Action, ...]:
    actions: list[Action] = []
    all_explicit = fate.random() < 0.4
    singly = fate.choice((0.0, 0.0, 0.5, 1.0))
    names = list(topics)
    grown = dict(topics)
    for _ in range(fate.randint(1, 14)):
        chance = fate.random()
        if transactional:
            chance = chance * 1.1 - 0.1 if chance < 0.9 else 0.92  # more, and shorter, transactions
        if chance < 0.60:
            rows = fate.choice((1, 1, 2, 3, 5, 20, 60))
            chosen = tuple(sorted(fate.sample(names, fate.randint(1, len(names)))))
            size = fate.choice((0, 10, 100, 100, 600))
            explicit = all_explicit or fate.random() < 0.3
            keyed, alone = fate.random() < 0.4, fate.random() < singly
            actions.append(Send(rows, chosen, keyed, explicit, size, alone))
        elif chance < 0.85:
            actions.append(Pause(fate.choice((0, 1, 10, 100, 3_000, 90_000)), fate.random() < 0.3))
        elif chance < 0.91:
            actions.append(Flush())
        elif chance < 0.96:
            park = None if fate.random() < 0.5 else fate.choice((0, 1_000, 700_000))
            if transactional:
                actions.append(Attempt(None, fate.random() < 0.3))
            else:
                actions.append(Attempt(park))
        else:
            topic = fate.choice(names)
            grown[topic] += fate.randint(1, 2)
            if topic not in late:
                actions.append(AddPartitions(topic, grown[topic]))
    if fate.random() < 0.12:
        actions.insert(fate.randint(0, len(actions)), Close(fate.choice((0, 0, 10, 2_000))))
    else:
        actions.append(Attempt(None))
        actions.append(Close(fate.choice((0, 60_000))))
    return tuple(actions)
