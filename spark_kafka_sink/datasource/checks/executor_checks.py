"""The checks of a cluster from where the tasks run: on each executor.

Owns: :func:`check`, and the job that carries the steps to the executors. Never: a step
(``cluster_checks.py``). A firewall between executors and brokers is not seen from the driver.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.config.secret_references import UnresolvedReferenceError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import State, Step, failed
from spark_kafka_sink.datasource.checks.cluster_checks import STEPS, check_cluster, check_host

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Rows of the range whose partitions are the tasks, one per slot of Spark: at least one each.
_ROWS: Final = 1 << 16
_SCHEMA: Final = "host string, name string, state string, said string, change string, code string"
_COLUMNS: Final = tuple(column.split()[0] for column in _SCHEMA.split(", "))
_TIMEOUT_S: Final = 30.0
#: The scheme of a Spark Connect server's address, as opposed to a master.
_CONNECT: Final = "sc://"
_OPTIONS: Final = "options"
#: States of a step by increasing severity, to choose among several tasks of one host.
_ORDER: Final = (State.SKIPPED, State.OK, State.WARNING, State.FAILED)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """The results of a machine: every step on the driver, the machine's steps on executors."""

    host: str
    driver: bool
    steps: tuple[Step, ...]

    @property
    def failed(self) -> Step | None:
        """The first failed step."""
        return next((step for step in self.steps if step.state is State.FAILED), None)


def check(
    spark: SparkSession, options: Mapping[str, object], *, timeout_s: float = _TIMEOUT_S
) -> tuple[HostCheck, ...]:
    """Checks a write of this session with ``options``; changes nothing.

    Returns the driver's check first, then one for each host that ran a task of a small job. With
    Spark Connect no check can run on the driver, and the client may not reach the brokers: there
    one of the tasks runs every step. ``timeout_s`` bounds each step. Raises ConfigError for options
    that a write would refuse, and what Spark raises when the job can't run.
    """
    config, timeout_ms = SinkConfig.parse(options), int(timeout_s * 1000)
    remote = type(spark).__module__.startswith("pyspark.sql.connect")
    found = check_executors(spark, config, timeout_ms=timeout_ms, whole=remote)
    if remote:
        return found
    here = HostCheck(
        platform.node(), driver=True, steps=tuple(check_cluster(config, timeout_ms=timeout_ms))
    )
    return (here, *found)


def check_from(address: str, config: SinkConfig, *, timeout_ms: int) -> tuple[HostCheck, ...]:
    """The executors of a new session, with a master (as for spark-submit) or a Spark Connect server
    (``sc://host:15002``) at ``address``. With Connect one of them runs every step.
    """
    from pyspark.sql import SparkSession

    remote = address.startswith(_CONNECT)
    builder = SparkSession.builder.appName("kprod check")
    spark = (builder.remote(address) if remote else builder.master(address)).getOrCreate()
    try:
        return check_executors(spark, config, timeout_ms=timeout_ms, whole=remote)
    finally:
        spark.stop()


def check_executors(
    spark: SparkSession, config: SinkConfig, *, timeout_ms: int, whole: bool
) -> tuple[HostCheck, ...]:
    """One check for each host that ran a task, by name. With ``whole`` one task runs every step."""
    job = spark.range(_ROWS).mapInArrow(_task_check(config, timeout_ms, whole=whole), _SCHEMA)
    hosts: dict[str, dict[str, Step]] = {}
    for host, name, state, said, change, code in job.collect():
        step, steps = Step(name, State(state), said, change, code), hosts.setdefault(host, {})
        before = steps.get(name)
        if before is None or _ORDER.index(step.state) > _ORDER.index(before.state):
            steps[name] = step
    order = (_OPTIONS, *STEPS)
    return tuple(
        HostCheck(host, driver=False, steps=tuple(steps[name] for name in order if name in steps))
        for host, steps in sorted(hosts.items())
    )


def _task_check(
    config: SinkConfig, timeout_ms: int, *, whole: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of each task, which ignores its input."""

    def check_in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        for _ in batches:
            pass
        context = TaskContext.get()
        every = whole and context is not None and context.partitionId() == 0
        steps = _steps(config, timeout_ms, every=every)
        host = platform.node()
        rows = [{"host": host, **asdict(step), "state": step.state.value} for step in steps]
        yield pa.RecordBatch.from_pylist(
            rows, schema=pa.schema([(name, pa.string()) for name in _COLUMNS])
        )

    return check_in_task


def _steps(config: SinkConfig, timeout_ms: int, *, every: bool) -> list[Step]:
    """An error that prevents every step on this machine (a missing store) is a step, too."""
    try:
        return list((check_cluster if every else check_host)(config, timeout_ms=timeout_ms))
    except UnresolvedReferenceError as error:
        return [failed(_OPTIONS, error.seen_by("an executor"))]
    except KafkaError as error:
        return [failed(_OPTIONS, error)]
