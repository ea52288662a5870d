"""Putting a function in front of a method, once, and taking it away."""

from __future__ import annotations

from spark_kafka_sink.datasource.session import spark_patches


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
