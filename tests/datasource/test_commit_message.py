"""Commit messages: what travels, and what the driver refuses."""

from __future__ import annotations

import pickle
import pickletools
from dataclasses import FrozenInstanceError, replace

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps

from spark_kafka_sink import __version__
from spark_kafka_sink.base.errors import CommitError
from spark_kafka_sink.datasource.write.commit_message import (
    SCHEMA_VERSION,
    ForeignCommitMessage,
    checked_messages,
    finished_messages,
    rebuild_message,
)
from tests.datasource.commit_messages import message


@pytest.mark.parametrize("dumps", [pickle.dumps, cloud_dumps])
def test_a_message_survives_sparks_pickle(dumps):
    assert pickle.loads(dumps(message())) == message()


def test_a_message_is_frozen():
    with pytest.raises(FrozenInstanceError):
        message().rows = 4


def test_a_pickle_names_only_the_function_that_rebuilds_it():
    names = [
        argument
        for opcode, argument, _ in pickletools.genops(pickle.dumps(message(), protocol=2))
        if opcode.name == "GLOBAL"
    ]
    assert names == ["spark_kafka_sink.datasource.write.commit_message rebuild_message"]


def test_a_none_is_refused_and_the_continuous_trigger_is_named():
    with pytest.raises(CommitError) as raised:
        checked_messages([message(), None, None])
    assert "2 of 3 tasks sent no commit message (first: task 1)" in raised.value.message
    assert "continuous trigger" in raised.value.hint


def test_a_message_of_another_version_names_both_versions():
    foreign = rebuild_message(SCHEMA_VERSION, "9.8.7", ())
    with pytest.raises(CommitError) as raised:
        checked_messages([foreign])
    assert "9.8.7" in raised.value.message
    assert __version__ in raised.value.message


def test_a_message_of_another_schema_is_rebuilt_without_raising():
    assert isinstance(rebuild_message(99, __version__, (("gone", 1),)), ForeignCommitMessage)
    with pytest.raises(CommitError, match="schema 99"):
        checked_messages([rebuild_message(99, __version__, ())])


@pytest.mark.parametrize("values", [(), (("rows", 1),), "text", 7, None, ((1,),)])
def test_whatever_the_fields_are_rebuilding_never_raises(values):
    with pytest.raises(CommitError, match="with other fields"):
        checked_messages([rebuild_message(SCHEMA_VERSION, __version__, values)])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rows", -1),
        ("rows", "3"),
        ("rows", True),
        ("retries", None),
        ("partition_id", -1),
        ("batch_id", -2),
        ("host", b"host"),
        ("query_id", None),
        ("nodes", [(1, 2, 3, 4, "")]),
        ("nodes", ((1, 2, 3, 4),)),
        ("nodes", ((1, -2, 3, 4, ""),)),
        ("nodes", ((1, 2, 3, 4, None),)),
        ("begun_ms", -1),
        ("app_name", None),
        ("offsets", (("t", 0, -5, 7),)),
        ("offsets", ((b"t", 0, 5, 7),)),
        ("offsets", (("t", 0, 7, 5),)),
        ("acknowledged", 2),
    ],
)
def test_a_field_that_is_not_what_it_must_be_is_refused(field, value):
    with pytest.raises(CommitError, match="contradicts itself"):
        checked_messages([replace(message(), **{field: value})])


def test_rows_that_were_not_acknowledged_are_never_committed():
    with pytest.raises(CommitError, match="3 rows in, 2 rows acknowledged"):
        checked_messages([message(acknowledged=2)])


def test_two_messages_of_one_partition_are_refused():
    with pytest.raises(CommitError, match="two commit messages claim partition 4"):
        checked_messages([message(partition_id=4), message(partition_id=4)])


def test_good_messages_pass_in_their_order():
    messages = [message(partition_id=i, rows=i, acknowledged=i) for i in range(3)]
    assert checked_messages(messages) == tuple(messages)


def test_an_abort_takes_what_there_is():
    foreign = rebuild_message(99, __version__, ())
    assert finished_messages([None, message(), foreign]) == (message(),)
