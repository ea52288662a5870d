"""Planning, tasks, commit and abort on a real Kafka, without Spark: what an abort knows."""

from __future__ import annotations

import base64
import pickle

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.exactly_once import transaction_commit
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.exactly_once.transactional_producers import process_worker
from tests.datasource.exactly_once.queries import COMMITTED, shows
from tests.datasource.exactly_once.stream_task import stream_task
from tests.programs import run_python

#: Another worker process: runs one task, prints its message, ends as interpreters do.
_WORKER = """
import base64, pickle, sys
from tests.datasource.exactly_once.stream_task import stream_task
config, plan = pickle.loads(base64.b64decode(sys.argv[1]))
print(base64.b64encode(pickle.dumps(stream_task(config, plan, 0, ["a", "b"]))).decode())
"""


@pytest.fixture
def config(options):
    yield parse_sink_config(options)
    process_worker().warm.close()


def test_a_timeout_above_the_brokers_limit_fails_at_planning(options):
    options |= {"kafka.transaction.timeout.ms": str(2**31 - 1)}
    with pytest.raises(ConfigError, match=r"transaction\.max\.timeout\.ms"):
        plan_transactions(parse_sink_config(options), streaming=True)


def test_an_abort_without_messages_sweeps_its_own_drivers(config, topic, consume):
    mine, other = "abcdef01", "abcdef02"
    first = plan_transactions(config, streaming=True, driver=mine)
    transaction_commit.commit(config, None, [stream_task(config, first, 0, ["a"])], 0)
    second = plan_transactions(config, streaming=True, driver=mine)
    state = second.state
    assert (state.last_done, state.query_id) == (0, "query-1")
    assert state.generation > 0
    message = stream_task(config, second, 1, ["killed before its message arrived"])
    assert message.prepared.transactional_id.endswith("~0"), "the id is used again"

    def abort(driver):
        return transaction_commit.abort(
            config, None, [], 1, tasks_may_run=True, driver_token=driver
        ).swept

    assert abort(other) == (), "another query of the prefix is left alone"
    assert plan_transactions(config, streaming=True).state.run_id == "run-1"
    assert abort(mine) == (message.prepared.transactional_id,)
    third = plan_transactions(config, streaming=True, driver=mine)
    assert third.state.superseded == ("run-1",), "Spark ends the run whose batch it aborts"
    transaction_commit.commit(config, None, [stream_task(config, third, 1, ["b"], "run-2")], 1)
    shows(consume, topic, ["a", "b"])


def test_a_worker_may_exit_with_a_prepared_transaction(config, topic, consume):
    """Spark stops idle workers: the warm producer goes with the interpreter, and says nothing."""
    plan = plan_transactions(config, streaming=True)
    given = base64.b64encode(pickle.dumps((config, plan))).decode()
    ended = run_python("-c", _WORKER, given)
    message = pickle.loads(base64.b64decode(ended.stdout))
    assert message.identity.run_id == "run-1"
    assert consume(topic, isolation=COMMITTED).values == []
    transaction_commit.commit(config, None, [message], 0)
    shows(consume, topic, ["a", "b"])
