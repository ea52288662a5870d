"""The same scripts sent to a FakeCluster and to real brokers find the same, step by step.

What can't be compared, and why:

- CONCURRENT_TRANSACTIONS while markers are written: a real broker is through in milliseconds, so
  scripts ask again until it passes (both worlds do); test_fake_cluster.py holds the state still.
- Producer ids, topic ids, leaders of new topics: chance. Ids are numbered by first appearance.
- Words of error messages: Java's sentences, which only people read.
- ApiVersions' maxima of APIs in which brokers are ahead of kio or of this cluster.
- NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: replicas must fail within a request.
- How many batches a Fetch brings at a time (brokers may end before a marker): scripts read on.
- A producer id's 32767 epochs used up: 10 s of a real broker's time; found alike once.
- A restart's snapshot and expired producers: minutes of a real broker's time.
- An empty transactional id in AddPartitionsToTxn and EndTxn: 5 lines of the same check.
- A broker that is cut off from its controller and not from us (``FakeCluster.cut_off``): no network
  here does that. What it shows is KIP-207's gap and ReplicaManager's answers, by reading.
- How long a coordinator's failover takes, and in which order 14, 15 and 16 are returned meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from tests.conformance import cluster_scripts, produce_scripts, transaction_scripts
from tests.conformance.script import Script, Tell, compare
from tests.conformance.worlds import FakeWorld, RealWorld
from tests.fakes.fake_cluster import FakeCluster
from tests.real_kafka import RealKafka

#: By name: the script, and its fewest steps.
ONE_NODE: dict[str, tuple[Tell, int]] = {
    "sequences": (produce_scripts.sequences, 30),
    "batches": (produce_scripts.batches, 40),
    "who_is_where": (cluster_scripts.who_is_where, 30),
    "protocol_1": (transaction_scripts.protocol_1, 60),
    "protocol_2": (transaction_scripts.protocol_2, 50),
    "exact ends, protocol 1": (partial(transaction_scripts.exact_ends, version=1), 30),
    "exact ends, protocol 2": (partial(transaction_scripts.exact_ends, version=2), 30),
    "late_add_partitions": (transaction_scripts.late_add_partitions, 11),
    "beside_an_open_one": (transaction_scripts.beside_an_open_one, 30),
    "filtered_lists": (partial(transaction_scripts.filtered_lists, version=1), 14),
    "behind an init, protocol 1": (partial(transaction_scripts.behind_an_init, version=1), 12),
    "behind an init, protocol 2": (partial(transaction_scripts.behind_an_init, version=2), 12),
}
#: Those that a 3.9 understands: it has no transactions of version 2.
ALSO_3_9 = [
    "protocol_1",
    "exact ends, protocol 1",
    "late_add_partitions",
    "beside_an_open_one",
    "filtered_lists",
    "behind an init, protocol 1",
]


@pytest.fixture(params=["kafka", "kafka_v1"], ids=["TV2", "TV1"])
def real(request: pytest.FixtureRequest) -> Iterator[tuple[int, RealWorld]]:
    broker: RealKafka = request.getfixturevalue(request.param)
    with RealWorld(broker.bootstrap) as world:
        yield broker.transaction_version, world


@pytest.fixture
def real_3_9(kafka_3_9: RealKafka) -> Iterator[RealWorld]:
    with RealWorld(kafka_3_9.bootstrap) as world:
        yield world


@pytest.mark.broker
@pytest.mark.parametrize("name", ONE_NODE)
def test_one_node_answers_as_a_broker_does(name: str, real: tuple[int, RealWorld]) -> None:
    """TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit."""
    level, world = real
    fake = FakeWorld(FakeCluster(1, transaction_version=level, abort_scan_ms=200))
    tell, steps = ONE_NODE[name]
    compare(tell, world, fake, steps)


def test_configs_are_those_of_a_broker(kafka: RealKafka) -> None:
    """As far as a check asks; of a broker's, what the session's have."""
    told = {"cleanup.policy": "delete", "auto.create.topics.enable": "false"}
    with RealWorld(kafka.bootstrap) as world:
        compare(cluster_scripts.configs, world, FakeWorld(FakeCluster(1, broker_configs=told)), 15)


@pytest.mark.broker
@pytest.mark.parametrize("name", ALSO_3_9)
def test_one_node_answers_as_a_broker_of_3_9_does(name: str, real_3_9: RealWorld) -> None:
    fake = FakeCluster(1, transaction_version=1, abort_scan_ms=200, versions={0: 11, 26: 4, 66: 1})
    tell, steps = ONE_NODE[name]
    compare(tell, real_3_9, FakeWorld(fake), steps)


def test_requests_to_the_wrong_node_are_answered_as_brokers_do(kafka3: RealKafka) -> None:
    with RealWorld(kafka3.bootstrap) as world:
        compare(cluster_scripts.three_nodes, world, FakeWorld(FakeCluster(3, random=Random(1))), 17)


def with_a_stop(tell: Callable[[Script, Callable[[int], None]], None]) -> Callable[..., None]:
    """Compares a script that stops nodes."""

    def compared(kafka: RealKafka, fake: FakeCluster, steps: int) -> None:
        def told(script: Script) -> None:
            real = isinstance(script.world, RealWorld)
            tell(script, (lambda node: kafka.node(node).stop()) if real else fake.stop_broker)

        with RealWorld(kafka.bootstrap) as world:
            compare(told, world, FakeWorld(fake), steps)

    return compared


def test_too_few_replicas_are_refused_as_by_brokers(kafka3: RealKafka) -> None:
    with_a_stop(cluster_scripts.too_few_replicas)(kafka3, FakeCluster(3), 5)


@pytest.mark.parametrize("version", [1, 2])
def test_a_decided_transaction_without_markers_answers_alike(
    kafka3: RealKafka, version: int
) -> None:
    """The markers' partition has too few replicas, so that the state between holds still."""
    tell = partial(cluster_scripts.markers_wait, version=version)
    with_a_stop(tell)(kafka3, FakeCluster(3, random=Random(1)), 22)


def test_a_coordinators_heir_knows_what_it_knew(kafka3: RealKafka) -> None:
    fake = FakeCluster(3, random=Random(1))
    fake.failover_ms = lambda: (100, 100)
    with_a_stop(cluster_scripts.a_coordinator_goes)(kafka3, fake, 8)
