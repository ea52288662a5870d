"""Commit messages: what reaches the driver, and what it does without one."""

from __future__ import annotations

import pickle

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps

from spark_kafka_sink.base.errors import CommitError
from spark_kafka_sink.datasource.write.commit_message import checked_messages, finished_messages
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from tests.datasource.commit_messages import message


@pytest.mark.parametrize("dumps", [pickle.dumps, cloud_dumps])
def test_a_message_survives_sparks_pickle(dumps):
    prepared = PreparedTransaction("p~app~j0b~g1.0123456789ab~17", 4711, 0, 2)
    for one in (message(), message(prepared=prepared, generation=3, payload=(3, 30))):
        assert pickle.loads(dumps(one)) == one


def test_a_none_is_refused_and_the_continuous_trigger_is_named():
    with pytest.raises(CommitError) as raised:
        checked_messages([message(), None, None])
    assert "2 of 3 tasks sent no commit message (first: task 1)" in raised.value.message
    assert "continuous trigger" in raised.value.hint


def test_an_abort_takes_what_there_is():
    assert finished_messages([None, message()]) == (message(),)
