"""The same scripts told to a FakeCluster and to real brokers find the same, step by step.

What can't be compared, and why:

- CONCURRENT_TRANSACTIONS while markers are written: a real broker is through in milliseconds, so
  scripts ask again until it passes (both worlds do); test_fake_cluster.py holds the state still.
- Producer ids, topic ids, leaders of new topics: chance. Ids are numbered by first appearance.
- Words of error messages: Java's sentences, which nobody reads but people.
- ApiVersions' maxima of APIs in which brokers are ahead of kio or of this cluster.
- NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT: replicas must fail within a request.
- How many batches a Fetch brings at a time (brokers may end before a marker): scripts read on.
- A producer id's 32767 epochs used up: 10 s of a real broker's time; found alike once, by
  ``broker_scripts.exhausted_epochs``.
- A restart's snapshot and expired producers: minutes of a real broker's time.
- An empty transactional id in AddPartitionsToTxn and EndTxn: 5 lines of the same check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from spark_kafka_sink.local_kafka import KafkaCluster
from tests.fakes import broker_scripts as scripts
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.script_worlds import FakeWorld, RealWorld, Script
from tests.real_kafka import RealKafka

ONE_NODE = {
    "sequences": 30,
    "batches": 40,
    "who_is_where": 30,
    "protocol_1": 60,
    "protocol_2": 50,
}


@pytest.fixture(scope="module", params=[2, 1], ids=["TV2", "TV1"])
def real(request: pytest.FixtureRequest) -> Iterator[tuple[int, RealWorld]]:
    level = request.param
    options = ("--feature", f"transaction.version={level}")
    with KafkaCluster(format_options=options) as cluster:
        world = RealWorld(cluster.bootstrap)
        yield level, world
        world.close()


def compare(tell: Callable[[Script], None], real: RealWorld, fake: FakeWorld, steps: int) -> None:
    ours, theirs = Script(fake), Script(real)
    tell(theirs)
    tell(ours)
    pairs = zip(ours.steps, theirs.steps, strict=True)
    others = [f"{a[0]}: the broker {b[1]}, the fake {a[1]}" for a, b in pairs if a != b]
    assert not others, "\n".join(others)
    assert len(ours.steps) >= steps


@pytest.mark.broker
@pytest.mark.parametrize("name", ONE_NODE)
def test_one_node_answers_as_a_broker_does(name: str, real: tuple[int, RealWorld]) -> None:
    """Behaviour 105."""
    level, world = real
    fake = FakeWorld(FakeCluster(1, transaction_version=level, abort_scan_ms=200))
    compare(getattr(scripts, name), world, fake, ONE_NODE[name])


def test_requests_to_the_wrong_node_are_answered_as_brokers_do(kafka3: RealKafka) -> None:
    world = RealWorld(kafka3.bootstrap)
    try:
        compare(scripts.three_nodes, world, FakeWorld(FakeCluster(3, random=Random(1))), 17)
    finally:
        world.close()


def test_too_few_replicas_are_refused_as_by_brokers(kafka3: RealKafka) -> None:
    world, fake = RealWorld(kafka3.bootstrap), FakeCluster(3)

    def tell(script: Script) -> None:
        real = script.world is world
        scripts.too_few_replicas(
            script, (lambda node: kafka3.node(node).stop()) if real else fake.stop_broker
        )

    try:
        compare(tell, world, FakeWorld(fake), 5)
    finally:
        world.close()
