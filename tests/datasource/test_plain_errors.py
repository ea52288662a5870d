"""What a user sees of an error of ours, and of a bug."""

from __future__ import annotations

import pickle
import traceback

import pytest

from spark_kafka_sink.base.errors import ConfigError, DeliveryError, IllegalStateError, KafkaError
from spark_kafka_sink.datasource.plain_errors import without_traceback


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
