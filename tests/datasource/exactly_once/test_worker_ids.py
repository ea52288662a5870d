"""The transactional ids of a worker process: which one a task gets, and when one is used again."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    WorkerIds,
    is_of_driver,
    process_worker,
)
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, parse
from tests.datasource.exactly_once.transaction_plans import RUN, plan

# --- ids ---------------------------------------------------------------------------------------


def take(worker: WorkerIds, batch_id: int, last_done: int, **changes: object) -> TransactionalId:
    return worker.acquire(plan(**changes), RUN, batch_id, last_done)[0]


def ids_of(
    worker: WorkerIds, batch_id: int, last_done: int, count: int = 1, **changes: object
) -> list[int]:
    return [take(worker, batch_id, last_done, **changes).number for _ in range(count)]


def test_an_id_is_reused_only_after_its_batch_is_done():
    worker = WorkerIds()
    assert ids_of(worker, 7, 6) == [0]
    assert ids_of(worker, 8, 6, 2) == [1, 2], "planned before 7 was done"
    assert ids_of(worker, 8, 7) == [0]
    assert ids_of(worker, 9, 8, 4) == [0, 1, 2, 3]


def test_runs_and_keys_count_by_themselves():
    worker = WorkerIds()
    taken = [
        str(worker.acquire(plan(key=key), run, 0, -1)[0]).replace(f"g3.{worker.token}", "W")
        for key, run in (("p", "r"), ("p", "s"), ("p.q", "r"), ("p~app", "r"), ("p", "r"))
    ]
    assert taken == ["p~r~W~0", "p~s~W~0", "p.q~r~W~0", "p~app~r~W~0", "p~r~W~1"]


def test_a_worker_is_known_by_twelve_hex_digits_that_parse():
    worker = WorkerIds()
    taken = take(worker, 0, -1, key="my.prefix~my-app")
    assert len(worker.token) == 12
    assert int(worker.token, 16) >= 0
    assert parse(str(taken)) == taken
    assert WorkerIds().token != worker.token


def test_an_id_names_the_driver_that_planned_it():
    worker = WorkerIds()
    planned = take(worker, 0, -1, driver="abcdef01")
    assert planned.worker == f"abcdef01.{worker.token}"
    assert parse(str(planned)) == planned
    assert is_of_driver(planned, "abcdef01")
    assert not is_of_driver(planned, "abcdef0")
    assert not is_of_driver(planned, "0bcdef01")
    unseen = take(worker, 0, -1)
    assert unseen.worker == worker.token
    assert not is_of_driver(unseen, worker.token[:8])
    assert unseen.number == 1, "the numbers are the run's, whoever plans it"


def test_an_id_has_its_generation_and_is_counted_within_it():
    """A run that takes over goes on at the next one."""
    worker = WorkerIds()
    first, second = (take(worker, n, n - 1, state=CommitState(generation=n)) for n in (0, 1))
    assert (first.planned, second.planned) == (0, 1)
    assert str(second) == f"p~{RUN}~g1.{worker.token}~0"
    assert parse(str(second)) == second


def test_an_id_that_is_given_up_is_never_taken_again():
    worker = WorkerIds()
    lost = take(worker, 0, -1)
    worker.retire(lost)
    assert [ids_of(worker, batch, batch - 1)[0] for batch in range(1, 5)] == [1, 1, 1, 1]


def test_a_real_fork_takes_another_token():
    mine = str(take(process_worker().ids, 0, -1))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(take(process_worker().ids, 0, -1)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert told.read() not in ("", mine)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=60))
def test_no_id_is_given_out_twice_while_its_use_may_matter(steps):
    """Micro-batches follow each other; some are not done yet when the next one's task comes."""
    worker = WorkerIds()
    batch, done = 0, -1
    in_use: dict[int, int] = {}
    for begins_next, behind in steps:
        if begins_next:
            batch += 1
            done = max(done, batch - 1 - behind)
        k = take(worker, batch, done).number
        assert in_use.get(k, -1) <= done, f"{k} was used in {in_use.get(k)}, and {done} is done"
        assert k == 0 or all(in_use.get(j, -1) > done for j in range(k)), "a smaller one was free"
        in_use[k] = batch
