"""A write that must fail, and all that its user sees of it."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.real_kafka import Consumed, RealKafka
from tests.waiting import PATIENCE, wait_for

#: What a wait may last beyond its option: Spark's planning and its Python workers, on a machine
#: that others use too.
SLACK_S = 45.0 * PATIENCE

#: Our line stands so near to the top of what Spark shows: Spark's own text about an exception of a
#: worker is above, in two lines at most, and no frame.
LINES_ABOVE = 2

#: Short waits, for what is never there. (Other writes must not fail because a broker is slow.)
BLOCK_MS = int(1_000 * PATIENCE)
IMPATIENT = {
    "kafka.max.block.ms": f"{BLOCK_MS}",
    "kafka.request.timeout.ms": f"{BLOCK_MS}",
    "kafka.delivery.timeout.ms": f"{3 * BLOCK_MS}",
}


@dataclass(frozen=True)
class Failure:
    """``text`` is Spark's message; ``line`` ours in it, ``rest`` what follows (hint and note)."""

    text: str
    line: str
    rest: str
    seconds: float
    jobs: int

    @property
    def on_the_driver(self) -> bool:
        """At planning: no task ran, no job was started."""
        return "Failed to initialize Python data source writer" in self.text and self.jobs == 0

    def says(self, *words: str) -> None:
        """The class and the message stand together; each of ours has a code between them."""
        assert re.search(r"Error: \[KP[0-9]{4}\] ", self.line), self.line
        told = re.sub(r"\[KP[0-9]{4}\] ", "", self.line + "\n" + self.rest)
        for word in words:
            assert word in told, f"{word!r} is not in\n{self.text}"


@dataclass(frozen=True)
class Jobs:
    """Counts the jobs that ``spark`` starts while a function runs."""

    spark: SparkSession

    def during(self, run: Callable[[], object]) -> int:
        context, group = self.spark.sparkContext, f"bad-input-{uuid.uuid4().hex}"
        context.setJobGroup(group, "a write that must fail")
        try:
            run()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        # Spark's own bookkeeping is behind by a queue of events; a job of ours goes through it.
        fence = f"{group}-fence"
        context.setJobGroup(fence, "a job that must be seen")
        self.spark.range(1).collect()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        tracker = context.statusTracker()
        wait_for(lambda: tracker.getJobIdsForGroup(fence), what="the fence's job")
        return len(tracker.getJobIdsForGroup(group))


@pytest.fixture
def jobs(spark: SparkSession) -> Jobs:
    return Jobs(spark)


Consume = Callable[..., Consumed]
Fails = Callable[..., Failure]
Write = Callable[..., None]


@pytest.fixture
def one_row(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1, 1, 1).selectExpr("'v' AS value")


@pytest.fixture
def write(kafka: RealKafka) -> Write:
    """``write(frame, topic, **options)``; ``bootstrap`` replaces the broker's address."""

    def save(
        df: DataFrame, topic: str | None = None, bootstrap: str | None = None, **options: str
    ) -> None:
        given = {"kafka.bootstrap.servers": bootstrap or kafka.bootstrap} | options
        if topic is not None:
            given["topic"] = topic
        df.write.format("kprod").mode("append").options(**given).save()

    return save


@pytest.fixture
def fails(write: Write, jobs: Jobs) -> Fails:
    """As ``write``, of what must fail, in bounded time and with a line of ours near the top."""

    def save(df: DataFrame, topic: str | None = None, **options: str) -> Failure:
        return failure_of(lambda: write(df, topic, **options), jobs)

    return save


@pytest.fixture
def gives_up(fails: Fails) -> Fails:
    """As ``fails``, with short waits."""

    def save(df: DataFrame, topic: str | None = None, **options: str) -> Failure:
        return fails(df, topic, **(IMPATIENT | options))

    return save


def failure_of(run: Callable[[], object], jobs: Jobs) -> Failure:
    caught: list[PySparkException] = []
    took: list[float] = []

    def once() -> None:
        start = time.monotonic()
        with pytest.raises(PySparkException) as raised:
            run()
        took.append(time.monotonic() - start)
        caught.append(raised.value)

    count = jobs.during(once)
    return read_failure(str(caught[0]), took[0], count)


def read_failure(text: str, seconds: float, jobs: int = 0) -> Failure:
    """Finds our line in what Spark shows: once, and near the top."""
    lines = text.splitlines()
    ours = [n for n, line in enumerate(lines) if "spark_kafka_sink.errors." in line]
    assert len(ours) == 1, text
    assert ours[0] <= LINES_ABOVE, text
    assert "Traceback" not in text
    return Failure(text, lines[ours[0]], "\n".join(lines[ours[0] + 1 : ours[0] + 4]), seconds, jobs)
