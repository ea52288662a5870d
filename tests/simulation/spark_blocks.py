"""What a user's function does with ``transaction`` in one micro-batch: one block, or two that have
one name; with its writes one after the other or in threads, in the order of their coming.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ConfigError, KafkaError
from spark_kafka_sink.datasource.foreach_batch import transaction
from tests.simulation.scheduler import Task
from tests.simulation.spark_application_life import Second
from tests.simulation.spark_sink import Frame
from tests.simulation.spark_writes import STRANGER, Outcome, Start, Write

if TYPE_CHECKING:
    from tests.simulation.spark_application import Application

NAME = "sales"
#: Rows are wrong only in the first starts.
_EARLY = 5
#: The frames of a second block, which no first block has.
_SECOND = (3, 4)


class Blocks:
    """``run`` is the user's function, called once for each start of each micro-batch."""

    def __init__(self, app: Application) -> None:
        self._app = app
        #: The user has corrected his code.
        self.corrected = False
        #: The number of writes of each batch, where the first call left it open.
        self._counts: dict[int, int] = {}

    def run(self, run: Start, number: int, tag: int, query: str | None) -> None:
        app, life = self._app, self._app.life.block
        second = Second.NONE if self.corrected or tag >= STRANGER else life.second
        frames = list(range(self._count(number)))
        if life.shuffled:
            app.fate.shuffle(frames)
        failed: list[KafkaError] = []

        def other() -> None:
            try:
                self._block(run, number, tag, query, _SECOND)
            except KafkaError as error:
                app.note(f"{run.id}: the second block: {type(error).__name__}: {error.message}")
                failed.append(error)

        beside: list[Task] = []

        def within() -> None:
            """When the first write of the first block is done."""
            if second is Second.NESTED:
                other()
                if failed and app.fate.random() < 0.5:
                    raise failed[0]
            elif second is Second.BESIDE:
                beside.append(run.process.start(other, "the second block"))
                app.scheduler.sleep(app.fate.choice((0, 5, 100)))

        self._block(run, number, tag, query, frames, within)
        app.scheduler.block(lambda: all(task.done for task in beside), NEVER)
        if second is Second.BEHIND:
            other()
        if second is not Second.NONE:
            app.fired[f"= second blocks: {second.value}"] += 1
        for error in failed:
            self.corrected = self.corrected or isinstance(error, ConfigError)
            raise error

    def _count(self, number: int) -> int:
        """How many writes the function makes: as many as before, once they are decided."""
        app, block = self._app, self._app.life.block
        if not block.varies or app.observer.is_decided(number):
            return self._counts.get(number, block.writes)
        self._counts[number] = app.fate.choice((1, 2, 3))
        return self._counts[number]

    def _block(
        self,
        run: Start,
        number: int,
        tag: int,
        query: str | None,
        frames: Sequence[int],
        within: Callable[[], None] = lambda: None,
    ) -> None:
        app, parts = self._app, list[Write]()

        def save(given: dict[str, str], part: int | None) -> None:
            write = Write(run, number, tag, given, False, run.query, part=part)
            if part is not None:
                parts.append(write)
                early = len(app.runs) < _EARLY
                write.broken = early and app.fate.random() < app.life.block.fails
            app.save(write)

        def write(frame: int) -> None:
            own = app.life.block.own_option if frame == frames[-1] else None
            options = dict([own]) if own is not None and not self.corrected else {}
            try:
                writes.write(Frame(save, query, frame, run.id), **options)  # type: ignore[arg-type]
            except KafkaError as error:
                self.corrected = self.corrected or isinstance(error, ConfigError)
                if run.stopped or app.fate.random() >= app.life.block.swallows:
                    raise
                app.fired["= errors of writes swallowed"] += 1

        try:
            with transaction(NAME, number, **app.options_of(run)) as writes:
                if app.life.block.threads:
                    self._in_threads(run, write, frames)
                else:
                    write(frames[0])
                    within()
                    for frame in frames[1:]:
                        write(frame)
        except KafkaError as error:
            self._failed(parts, error)
            raise
        for part in parts:
            part.outcome = Outcome.TOLD

    def _in_threads(self, run: Start, write: Callable[[int], None], frames: Sequence[int]) -> None:
        failed: list[KafkaError] = []

        def in_thread(frame: int) -> None:
            try:
                write(frame)
            except KafkaError as error:
                failed.append(error)

        threads = [
            run.process.start(lambda frame=frame: in_thread(frame), f"write {frame}")
            for frame in frames
        ]
        self._app.scheduler.block(lambda: all(thread.done for thread in threads), NEVER)
        for error in failed:
            raise error

    def _failed(self, parts: Sequence[Write], error: KafkaError) -> None:
        """A reported failure of a block is true for each of its writes."""
        if self._app.is_doubtful(error):
            return
        for part in parts:
            part.error = part.error or error
            self._app.observer.check_failed(part)
