"""The fixtures of tests with a producer's real network thread; see answered_producers.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.producer.answered_producers import Producers


@pytest.fixture
def producers() -> Iterator[Producers]:
    factory = Producers()
    yield factory
    for producer in factory.made:
        producer.close(0)
        assert not producer._thread.is_alive()


@pytest.fixture
def small_batches(producers: Producers) -> None:
    """Of 1000 bytes."""
    producers.defaults["batch_size"] = 1000
