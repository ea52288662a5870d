"""Checks the cluster from the executors, where the tasks run, in a small Spark job.

A check on the driver alone would miss a firewall between executors and brokers.
``cluster_checks.py`` has the steps of the check.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, KafkaError, safe_text
from spark_kafka_sink.base.security.secret_references import UnresolvedReferenceError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import Step, StepState, failed, red
from spark_kafka_sink.datasource.checks.cluster_checks import STEPS, check_cluster, check_host

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Rows of the range whose partitions are the tasks, one per slot of Spark: at least one each.
_ROWS: Final = 1 << 16
#: The low bits of monotonically_increasing_id, which count the rows of a partition.
_OF_PARTITION: Final = (1 << 33) - 1
_TIMEOUT_S: Final = 30.0
#: The scheme of a Spark Connect server's address, as opposed to a master.
_CONNECT: Final = "sc://"
_OPTIONS, _SPARK = "options", "Spark"
_TRACEBACK: Final = "Traceback (most recent call last):"
#: Shown characters of Spark's message about a failed job.
_MOST_SAID: Final = 400
#: States of a step by increasing severity, to choose among several tasks of one host.
_ORDER: Final = (StepState.SKIPPED, StepState.OK, StepState.WARNING, StepState.FAILED)


@dataclass(frozen=True, slots=True)
class HostCheck:
    """The results of a check on the machine ``host``. ``driver`` is true for the driver, which runs
    every step.

    An executor usually runs only the steps whose result can differ between machines.
    """

    host: str
    driver: bool
    steps: tuple[Step, ...]

    @property
    def failed(self) -> Step | None:
        """The first failed step. None if no step failed."""
        return next((step for step in self.steps if step.state is StepState.FAILED), None)


def check(
    spark: SparkSession, options: Mapping[str, object], *, timeout_s: float = _TIMEOUT_S
) -> tuple[HostCheck, ...]:
    """Checks whether this session can write with ``options``. Writes nothing.

    Returns the driver's result first, and then a result for each host that ran a task of a small
    Spark job. With Spark Connect there is no result of the driver, because the client may be unable
    to reach the brokers. Instead, a single task runs every step.

    ``timeout_s`` is the time limit of each request to the brokers. Raises ConfigError for options
    that a write would refuse. If the Spark job can't run, the result contains a failed step.
    """
    config, timeout_ms = parse_sink_config(options), int(timeout_s * 1000)
    remote = type(spark).__module__.startswith("pyspark.sql.connect")
    found = check_executors(spark, config, timeout_ms=timeout_ms, whole=remote)
    if remote:
        return found
    here = HostCheck(
        platform.node(), driver=True, steps=tuple(check_cluster(config, timeout_ms=timeout_ms))
    )
    return (here, *found)


def check_from(address: str, config: SinkConfig, *, timeout_ms: int) -> tuple[HostCheck, ...]:
    """Checks the cluster from the executors of a new Spark session, in a small Spark job.

    ``address`` is a master (as for spark-submit) or a Spark Connect server (``sc://host:15002``).
    With a master, the tasks run only the steps whose result can differ between machines, because
    the caller runs every step on this machine. With a Spark Connect server, this machine may be
    unable to reach the brokers. So one of the tasks runs every step.

    Raises ConfigError if PySpark is not installed. If the session can't be created, the result has
    a failed step.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(
            f"--from-executors needs Spark here, and {safe_text(str(error))}",
            hint="pip install pyspark, in the version of the cluster",
            kind=Kind.MISSING_PACKAGE,
        ) from None

    remote = address.startswith(_CONNECT)
    builder = SparkSession.builder.appName("kprod check")
    try:
        if remote:
            _await_server(address, timeout_ms)
        spark = (builder.remote(address) if remote else builder.master(address)).getOrCreate()
    except Exception as error:  # noqa: BLE001 - of Spark, of its JVM, or of gRPC
        return (_spark_failure(error),)
    try:
        return check_executors(spark, config, timeout_ms=timeout_ms, whole=remote)
    finally:
        spark.stop()


def _await_server(address: str, timeout_ms: int) -> None:
    """Raises TimeoutError if there is no Spark Connect server at ``address``. (pyspark itself would
    retry for ten minutes.)
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    channel = DefaultChannelBuilder(address).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout_ms / 1000)
    except grpc.FutureTimeoutError:
        message = f"no Spark Connect server was reached within {timeout_ms} ms"
        raise TimeoutError(message) from None
    finally:
        channel.close()


def check_executors(
    spark: SparkSession, config: SinkConfig, *, timeout_ms: int, whole: bool
) -> tuple[HostCheck, ...]:
    """Runs the steps of the check in Spark tasks. Returns a :class:`HostCheck` for each host,
    sorted by the names of the hosts.

    The tasks run only the steps whose result can differ between machines. If ``whole`` is True, one
    of the tasks runs all steps. If the Spark job can't run, the result has one failed step.
    """
    try:
        found = _collect(spark, config, timeout_ms, whole=whole)
    except Exception as error:  # noqa: BLE001 - of Spark, of its JVM, or of gRPC
        return (_spark_failure(error),)
    hosts: dict[str, dict[str, Step]] = {}
    for host, name, state, said, change, code in found:
        step, steps = Step(name, StepState(state), said, change, code), hosts.setdefault(host, {})
        before = steps.get(name)
        if before is None or _ORDER.index(step.state) > _ORDER.index(before.state):
            steps[name] = step
    order = (_OPTIONS, *STEPS)
    return tuple(
        HostCheck(host, driver=False, steps=tuple(steps[name] for name in order if name in steps))
        for host, steps in sorted(hosts.items())
    )


def _spark_failure(error: Exception) -> HostCheck:
    """Creates the result of a check whose Spark session or Spark job raised ``error``: one failed
    step. The step shows one line of the text of ``error``. This is the exception of the Python
    worker if the text has one, otherwise the exception of the JVM, otherwise the first line.
    """
    text = str(error)
    raised = re.search(r"^\w[\w.]*: .+", text.partition(_TRACEBACK)[2], re.MULTILINE)
    found = raised or re.search(r"(?<=^: ).+", text, re.MULTILINE) or re.search(r"\S.*", text)
    said = f"{type(error).__name__}: {'without a message' if found is None else found[0]}"
    change = (
        "no task ran there: see Spark's own log. Executors need this package, and its version "
        "(pip install, or spark.submit.pyFiles)"
    )
    return HostCheck(
        "executors",
        driver=False,
        steps=(red(_SPARK, safe_text(said, _MOST_SAID), change, Kind.NO_SPARK_JOB),),
    )


def _collect(
    spark: SparkSession, config: SinkConfig, timeout_ms: int, *, whole: bool
) -> list[tuple[str, ...]]:
    """Runs the steps in the tasks of a Spark job, with as many tasks as Spark uses by default.
    Returns the results of all tasks as tuples.
    """
    from pyspark.sql.functions import spark_partition_id, udf

    # A plain UDF: an Arrow UDF would need pandas, which this package does not install. Each
    # partition has one row, so that the UDF runs once in each task.
    check_task = udf(_task_check(config, timeout_ms, whole=whole), "string", useArrow=False)
    first = spark.range(_ROWS).filter(f"monotonically_increasing_id() & {_OF_PARTITION} = 0")
    tasks = first.select(check_task.asNondeterministic()(spark_partition_id()))
    return [row for (rows,) in tasks.collect() for row in json.loads(rows)]


def _task_check(config: SinkConfig, timeout_ms: int, *, whole: bool) -> Callable[[int], str]:
    """Creates the UDF of the tasks. The UDF takes the partition's number, and returns the results
    of the steps as JSON.
    """

    def check_in_task(partition: int) -> str:
        steps = _steps(config, timeout_ms, every=whole and partition == 0)
        host = platform.node()
        return json.dumps([(host, s.name, s.state, s.said, s.change, s.code) for s in steps])

    return check_in_task


def _steps(config: SinkConfig, timeout_ms: int, *, every: bool) -> list[Step]:
    """Runs the steps of the check on this machine. If ``every`` is false, runs only the steps whose
    result can differ between machines.

    If an error prevents every step, such as a missing trust store, the result is one failed step.
    """
    try:
        if every:
            return list(check_cluster(config, timeout_ms=timeout_ms, on_driver=False))
        return list(check_host(config, timeout_ms=timeout_ms))
    except UnresolvedReferenceError as error:
        return [failed(_OPTIONS, error.seen_by("an executor"))]
    except KafkaError as error:
        return [failed(_OPTIONS, error)]
