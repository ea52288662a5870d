"""A seed's life, lived and judged."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from tests.simulation.invariants import check
from tests.simulation.life import draw
from tests.simulation.world import World

#: Lines of a failing life's end that are printed.
_TAIL = 60


class LifeError(AssertionError):
    """A seed that breaks an invariant: its script, the end of what happened, and how to replay."""

    def __init__(self, world: World, error: BaseException) -> None:
        self.seed = world.life.seed
        tail = "\n".join(world.trace[-_TAIL:])
        super().__init__(
            f"{type(error).__name__}: {error}\n{world.life}\n  ... what happened last:\n{tail}\n"
            f"{type(error).__name__}: {error}\n"
            f"replay: python -m tests.simulation --seeds 1 --from {self.seed} --trace"
        )


def live(
    seed: int,
    *,
    mutate: Callable[[KafkaProducer], None] = lambda _: None,
    before_check: Callable[[World], None] = lambda _: None,
) -> World:
    """Live and judge the life of ``seed``; LifeError says what broke."""
    world = World(draw(seed), mutate=mutate)
    try:
        world.live()
        if world.life.transactional:
            world.settle()
        before_check(world)
        check(world)
    except Exception as error:
        raise LifeError(world, error) from error
    return world
