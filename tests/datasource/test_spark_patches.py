"""Putting a function in front of a method, once, and taking it away."""

from __future__ import annotations

import sys

import pytest
from pyspark.sql import DataFrameWriter

from spark_kafka_sink.datasource.session import default_mode, session_settings, spark_patches


class Toy:
    def greet(self, name, *, loud=False):
        """Says hello."""
        return f"hello {name}{'!' if loud else ''}"


class Heir(Toy):
    pass


def shouting(method, self, *args, **kwargs):
    return method(self, *args, **kwargs).upper()


def test_a_wrap_hands_on_every_argument_and_can_be_taken_away():
    original = Toy.greet
    spark_patches.wrap(Toy, "greet", shouting)
    try:
        assert Toy().greet("ann", loud=True) == "HELLO ANN!"
        assert (Toy.greet.__name__, Toy.greet.__doc__) == ("greet", "Says hello.")
    finally:
        spark_patches.unwrap(Toy, "greet")
    assert Toy.greet is original


def test_wrapping_twice_is_wrapping_once():
    original = Toy.greet
    spark_patches.wrap(Toy, "greet", shouting)
    once = Toy.greet
    spark_patches.wrap(Toy, "greet", shouting)
    assert Toy.greet is once
    spark_patches.unwrap(Toy, "greet")
    spark_patches.unwrap(Toy, "greet")
    assert Toy.greet is original


def test_a_method_that_is_not_there_or_not_its_own_is_left_alone():
    spark_patches.wrap(Toy, "gone", shouting)
    spark_patches.wrap(Heir, "greet", shouting)
    assert not hasattr(Toy, "gone")
    assert Heir().greet("ann") == "hello ann"


def test_only_classes_of_imported_modules_are_found():
    found = spark_patches.Patches("Toy", (__name__, "pyspark.no.such.module", "sys"), {})._classes()
    assert found == [Toy]


OF_A_SERVER = {default_mode._save, session_settings._with_settings}


def patches_of_save():
    return OF_A_SERVER & {*spark_patches._arounds_of(DataFrameWriter.__dict__["save"])}


@pytest.fixture
def batches():
    """The batches that a user's foreachBatch function got. Spark's writer begins unpatched."""
    patches, before = (default_mode.PATCHES[0], session_settings.PATCHES[0]), patches_of_save()
    for one in patches:
        one.uninstall()
    yield []
    for one in patches:
        (one.install if before else one.uninstall)()


def sent_to_a_server(batches):
    """The function that Spark Connect pickles, and calls in a process of its server."""
    around = default_mode._foreach_batch
    return around(lambda _, func: func, object(), lambda *given: batches.append(given))


def test_a_function_on_a_connect_server_installs_the_patches_there(batches):
    sent_to_a_server(batches)("rows", 7)
    assert batches == [("rows", 7)]
    assert patches_of_save() == OF_A_SERVER


def test_a_function_on_a_connect_server_without_the_package_is_called(batches, monkeypatch):
    """Such a function may write to another format."""
    monkeypatch.setitem(sys.modules, default_mode.__name__, None)
    sent_to_a_server(batches)("rows", 7)
    assert batches == [("rows", 7)]
    assert not patches_of_save()
