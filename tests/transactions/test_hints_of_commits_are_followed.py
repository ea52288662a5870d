"""The hint of a commit that fails works when it is followed: in simulated time, on a fake cluster.

A row is a way of ``failing_commits.py``, words of its hint, and what each piece of advice is done
by.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import KafkaError, RefusedError
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.failing import KEY, MINE, Failing
from tests.transactions.failing_commits import ABORTS, WAYS

pytestmark = VERSIONS

Follow = Callable[[Failing], None]
BY_NAME = {way.name: way for way in (*WAYS, *ABORTS)}
#: Longer than the tasks of ``the_tasks_took_too_long`` sleep.
LONG_MS = 120_000


def operator(f: Failing) -> Operator:
    client = f.scene.client()
    return Operator(CommitLog(client, LOG_TOPIC), client)


def times_seen(f: Failing) -> dict[str, int]:
    visible = f.scene.values()
    return {value: visible.count(value) for value in MINE}


def written(number: int = 0, key: str = KEY, wait_ms: int = 0, seen: int = 1) -> Follow:
    """Another start writes the rows under ``key``; readers see each of them ``seen`` times."""

    def follow(f: Failing) -> None:
        f.scene.cluster.heal()
        f.scene.scheduler.sleep(LONG_MS)  # brokers abort what the failed attempt left open
        with f.scene.driver() as driver:
            generation = driver.plan(key).generation
            owner = Owner(key, "next", "query", generation, f.numbering)
            prepared = f.scene.prepared(f"{key}~next~g{generation}.w{number}~0", *MINE)
            f.scene.scheduler.sleep(wait_ms)
            batch = Batch(number, (prepared,), Payload(len(MINE), sum(map(len, MINE)), "t"))
            assert driver.commit(owner, batch) is Commit.COMMITTED
        assert times_seen(f) == dict.fromkeys(MINE, seen)

    return follow


def with_longer_transactions(f: Failing) -> None:
    f.scene.changes |= {"transaction_timeout_ms": LONG_MS}
    written(wait_ms=40_000)(f)


def with_other_names(number: int = 0, key: str = "p~other") -> Follow:
    """A query that shared its prefix or name has one of its own."""
    return written(number, key)


def reset(f: Failing) -> None:
    """As ``kprod txn reset`` does, when no transaction of the query is open."""
    f.scene.scheduler.sleep(LONG_MS)
    operates = operator(f)
    operates.reset(operates.plan_reset(KEY))
    written(5)(f)


def forgotten(f: Failing) -> None:
    """As ``kprod txn reset --force`` does with a key that can't be read."""
    operates = operator(f)
    assert operates.damage(KEY) is not None
    operates.forget(KEY)
    assert operates.damage(KEY) is None
    written()(f)


def resolved(*, done: bool) -> Follow:
    """As ``kprod txn resolve`` does: the rows that brokers aborted are given up, or all come again
    beside those that are visible.
    """

    def follow(f: Failing) -> None:
        f.scene.cluster.heal()
        before = times_seen(f)
        assert sorted(before.values()) == [0, 1], "it is committed in part"
        operates = operator(f)
        operates.resolve(operates.plan_resolve(KEY, 0, done=done))
        if not done:
            with f.scene.driver() as driver:
                owner = Owner(KEY, "next", "query", driver.plan(KEY).generation, f.numbering)
                assert driver.commit(owner, f.batch(*MINE, run="next")) is Commit.COMMITTED
        more = 0 if done else 1
        assert times_seen(f) == {value: count + more for value, count in before.items()}

    return follow


def resolved_by_a_start(f: Failing) -> None:
    """The rows are visible, or the start lets them be written again: once in any case."""
    f.scene.cluster.heal()
    f.scene.scheduler.sleep(LONG_MS)
    with f.scene.driver() as driver:
        state = driver.plan(KEY)
    if state.last_done < 0:
        written()(f)
    assert times_seen(f) == dict.fromkeys(MINE, 1)


def described(f: Failing) -> None:
    """``kprod txn describe`` shows that the log has no record of the abort."""
    f.scene.cluster.heal()
    f.scene.scheduler.sleep(LONG_MS)
    with pytest.raises(RefusedError, match="the commit log has no key"):
        operator(f).inspector.describe(KEY)
    assert times_seen(f) == dict.fromkeys(MINE, 0)
    written()(f)


TWICE = "two queries share a transactionalIdPrefix or a name of foreach_batch"
PAUSED = "write the batch again; this driver was paused, or brokers were away, for longer than"
AGAIN = "write the batch again; if no other driver was started, an operator did"
TOO_LONG = "a transaction may stay open for kafka.transaction.timeout.ms from its task's first row"
OLD = "otherwise write in smaller batches, or raise kafka.transaction.timeout.ms"
MANY = "this one must stop; if no other was started, two queries share a transactionalIdPrefix"
DOWN = "see which brokers are down, then write the batch again"
UNDONE = "nothing was undone: start the query again, and it resolves the batch"
DAMAGED = "'kprod txn reset p~name --force' forgets the key"
PART = "'kprod txn resolve p~name --batch 0 --as done' continues without them, '--as replay'"

ROWS: list[tuple[str, str, list[Follow]]] = [
    ("another_driver_has_taken_over", TWICE, [with_other_names(), written(2)]),
    ("many_aborts_have_shut_it_out", "start the query or the job again", [written()]),
    ("the_log_was_lost", "the next start continues without that state", [written(1)]),
    ("the_run_was_aborted", "nothing of the batch that it was to commit is visible: start",
     [written()]),
    ("a_batch_that_is_not_the_next_one", "a different prefix or name for each query; if that is",
     [with_other_names(5), reset]),
    ("a_version_that_was_left_out", "use a separate txnAppId for backfills",
     [with_other_names(5, "p~backfill")]),
    ("a_version_while_a_later_one_was_committed", "write its versions in ascending order",
     [written(10)]),
    ("a_transaction_was_aborted", TOO_LONG, [written()]),
    ("the_tasks_took_too_long", OLD, [written(), with_longer_transactions]),
    ("a_partition_has_no_leader", DOWN, [written()]),
    ("the_log_takes_no_record", "start the brokers that are down", [written()]),
    ("others_keep_opening_the_log", MANY, [with_other_names(), written()]),
    ("an_abort_while_others_keep_opening_the_log", MANY, [written()]),
    ("the_report_is_always_fenced", AGAIN, [written()]),
    ("a_write_of_a_block_has_no_answer", DOWN, [written()]),
    ("the_decision_does_not_arrive", UNDONE, [resolved_by_a_start]),
    ("the_decision_arrives_and_the_log_is_away_then", UNDONE, [resolved_by_a_start]),
    ("the_coordinators_of_the_data_load", UNDONE, [resolved_by_a_start]),
    ("brokers_abort_one_of_a_decision", PART, [resolved(done=True), resolved(done=False)]),
    ("brokers_abort_all_of_a_decision", PAUSED, [written()]),
    ("the_record_is_damaged", DAMAGED, [forgotten]),
    ("the_record_names_another_key", DAMAGED, [forgotten]),
    ("the_record_has_lost_a_piece", DAMAGED, [forgotten]),
    ("an_abort_with_a_damaged_record", DAMAGED, [forgotten]),
    ("an_abort_without_an_answer", "'kprod txn describe' shows the records that it has",
     [described]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("way", "words", "follow"),
    [(way, words, follow) for way, words, ways in ROWS for follow in ways],
    ids=[f"{way} {n}" for way, _, ways in ROWS for n in range(len(ways))],
)
def test_the_hint_of_a_commit_leads_to_visible_rows(
    scene: Scene, way: str, words: str, follow: Follow
) -> None:
    failing = Failing(scene)
    with pytest.raises(KafkaError) as raised:
        BY_NAME[way].go(failing)
    assert words in str(raised.value.hint)
    follow(failing)


def test_a_job_that_ran_beside_another_one_writes_after_it(scene: Scene) -> None:
    failing = Failing(scene)
    failing.numbering = Numbering.VERSIONS
    with pytest.raises(KafkaError) as raised:
        BY_NAME["another_driver_has_taken_over"].go(failing)
    assert str(raised.value.hint).startswith("two jobs with one txnAppId ran at the same time")
    assert times_seen(failing) == dict.fromkeys(MINE, 0), "nothing of this one is visible"
    written(2)(failing)
