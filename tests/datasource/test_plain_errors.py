"""What a user sees of an error of ours, and of a bug."""

from __future__ import annotations

import pickle
import traceback

import pytest

from spark_kafka_sink.base.errors import ConfigError, DeliveryError, IllegalStateError, KafkaError
from spark_kafka_sink.base.security.local_files import UnusableFileError
from spark_kafka_sink.datasource.process.plain_errors import without_traceback
from tests.programs import run_python


def shown(error):
    """The lines that Spark would show."""

    @without_traceback
    def called():
        deep_inside(error)

    def deep_inside(error):
        raise error from error.__cause__

    with pytest.raises(type(error)) as caught:
        called()
    text = "".join(traceback.format_exception(caught.value))
    return text, "deep_inside" in text


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no such option", hint="take another"),
        caused(DeliveryError("refused"), KafkaError("as the broker says")),
        caused(DeliveryError("refused"), caused(KafkaError("lost"), OSError("reset"))),
        caused(ConfigError("offsets/3 can't be read"), UnusableFileError("it is a directory")),
    ],
    ids=str,
)
def test_an_error_of_ours_comes_without_frames_and_causes(error):
    text, frames = shown(error)
    assert not frames
    assert text.count("Traceback") == 1
    assert str(error) in text


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        IllegalStateError("out of order"),
        caused(KafkaError("the network thread stopped"), KeyError("x")),
        caused(DeliveryError("failed"), IllegalStateError("out of order")),
    ],
    ids=repr,
)
def test_a_bug_keeps_its_frames_and_causes(error):
    text, frames = shown(error)
    assert frames

    assert error.__cause__ is None or type(error.__cause__).__name__ in text


def test_a_note_stays():
    error = ConfigError("bad")
    error.add_note("of row 3")
    assert "of row 3" in shown(error)[0]


@without_traceback
def one(value):
    return value


def test_a_call_without_an_error_is_only_a_call():
    assert one(3) == 3
    assert pickle.loads(pickle.dumps(one)) is one


@pytest.mark.parametrize(
    ("main", "hides"),
    [
        ("pyspark.daemon", True),
        ("pyspark.worker", True),
        ("pyspark.sql.worker.write_into_data_source", True),
        ("pyspark.sql.connect.streaming.worker.foreach_batch_worker", False),
        ("pytest.__main__", False),
    ],
)
def test_only_a_worker_of_spark_hides_sparks_own_frames(main, hides):
    """A worker ends with the error; a process of the user's goes on, and has other errors."""
    program = """
import os, sys
from types import SimpleNamespace
sys.modules["__main__"].__spec__ = SimpleNamespace(name=sys.argv[1])
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.process.plain_errors import without_traceback

@without_traceback
def fails():
    raise error

for error in (KeyError("x"), ConfigError("bad")):
    try:
        fails()
    except Exception:
        print(os.environ.get("SPARK_HIDE_TRACEBACK"))
"""
    ended = run_python("-c", program, main)
    assert ended.stdout.split() == ["None", "1" if hides else "None"]
