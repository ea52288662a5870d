"""The steps of ``kprod check``: they check every condition of a write.

* :func:`check_cluster` runs all steps on this machine.
* :func:`check_host` runs only the steps whose result can differ between machines.
* :func:`check_exactly_once` also tries transactions, in a topic of its own.

:func:`check_cluster` and :func:`check_host` create no topic and write no record.
:func:`check_cluster` initializes a transactional id or a producer id, but sends nothing with it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import AuthorizationError, UnsupportedVersionError, safe_text
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import (
    Step,
    StepState,
    not_reached,
    ok,
    skipped,
    step_of,
    warned,
    yellow,
)
from spark_kafka_sink.datasource.checks.clock_difference import clock_difference
from spark_kafka_sink.datasource.checks.connection_steps import (
    BROKERS,
    OF_CONNECTION,
    answered,
    brokers,
    connection,
    contact,
)
from spark_kafka_sink.datasource.checks.dead_letter_checks import queue_check
from spark_kafka_sink.datasource.checks.driver_python import NAME as OF_DRIVER
from spark_kafka_sink.datasource.checks.driver_python import driver_python_step
from spark_kafka_sink.datasource.checks.exactly_once_trial import OF_TRIAL, trial_steps
from spark_kafka_sink.datasource.checks.own_code import check_own_code
from spark_kafka_sink.datasource.checks.topic_checks import clock_warning
from spark_kafka_sink.datasource.checks.topic_steps import (
    OF_REPORTS,
    OF_TOPIC,
    Settings,
    progress_topic_step,
    report_topic_step,
    settings_if_there,
    topic_steps,
)
from spark_kafka_sink.datasource.checks.transaction_steps import (
    OF_TRANSACTIONS,
    PRODUCER_ID,
    producer_id_step,
    transaction_steps,
)
from spark_kafka_sink.datasource.report.report_file import check_report_path, lacks
from spark_kafka_sink.datasource.schemas.payload_schemas import described
from spark_kafka_sink.network.client.client_factory import impatient
from spark_kafka_sink.network.client.connection_probe import ConnectionProbe, Stage

_CLASSES, _REPORT_PATH, _CLOCK, _REGISTRY = "classes", "reportPath", "clock", "schema registry"
_LETTERS = "dead letter queue"
#: Every step, in order.
STEPS: Final = (
    *(OF_DRIVER, _CLASSES, _REPORT_PATH),
    *OF_CONNECTION,
    *OF_TOPIC,
    *OF_REPORTS,
    *(PRODUCER_ID, _CLOCK, _LETTERS, _REGISTRY),
    *OF_TRANSACTIONS,
)
#: All steps, and the steps of the trial of exactly-once.
TRIAL_STEPS: Final = (*STEPS, *OF_TRIAL)
#: If one of these steps fails, the trial is skipped.
_NEEDED_BY_TRIAL: Final = (*OF_CONNECTION, *OF_TRANSACTIONS)
#: The steps whose result may differ between machines.
HOST_STEPS: Final = (_CLASSES, *OF_CONNECTION, _CLOCK)


def check_cluster(
    config: SinkConfig, *, timeout_ms: int, clock: Clock | None = None, on_driver: bool = True
) -> Iterator[Step]:
    """Checks on this machine whether a write with ``config`` can work. Runs all :data:`STEPS`, and
    yields each result when the step is done. A step that is impossible because of an earlier
    failure is skipped.

    ``timeout_ms`` is the time limit of each request. ``on_driver`` is False if a task calls this
    function. In a task, the step for the driver's Python interpreter is skipped. Raises ConfigError
    for invalid settings, such as a trust store that does not exist.
    """
    return _all_of(STEPS, _whole(config, timeout_ms, clock, on_driver=on_driver))


def _whole(
    config: SinkConfig, timeout_ms: int, clock: Clock | None, *, on_driver: bool
) -> Iterator[Step]:
    if on_driver:
        yield driver_python_step()
    else:
        yield skipped(OF_DRIVER, "the driver's is not seen from a task")
    yield from _steps(config, timeout_ms, clock)


def check_exactly_once(config: SinkConfig, *, timeout_ms: int) -> Generator[Step, None, None]:
    """Runs the steps of :func:`check_cluster`, and then a trial of transactions. Yields the results
    of all steps, in the order of :data:`TRIAL_STEPS`.

    The trial is skipped if a step for connections or transactions has failed. The trial uses its
    own topic and its own transactional id. The caller must always close the generator. If the
    caller stops early, the call of ``close`` removes the topic.
    """
    failed = False

    def steps() -> Generator[Step, None, None]:
        nonlocal failed
        for step in _whole(config, timeout_ms, None, on_driver=True):
            failed |= step.state is StepState.FAILED and step.name in _NEEDED_BY_TRIAL
            yield step
        if not failed:
            with (
                TransactionClient(impatient(config.producer)) as client,
                closing(trial_steps(client, config, timeout_ms)) as trial,
            ):
                yield from trial

    with closing(steps()) as found:
        yield from _all_of(TRIAL_STEPS, found)


def check_host(
    config: SinkConfig, *, timeout_ms: int, clock: Clock | None = None
) -> Iterator[Step]:
    """Runs only the :data:`HOST_STEPS`, whose results may differ from machine to machine. Yields
    their results. The arguments are the same as for :func:`check_cluster`.
    """
    return _all_of(HOST_STEPS, _steps(config, timeout_ms, clock, host_only=True))


def _all_of(names: Iterable[str], found: Iterator[Step]) -> Iterator[Step]:
    """Yields the results of ``found`` in the order of ``names``. Yields a skipped step for a name
    without a result.
    """
    left = list(names)
    for step in found:
        while left[0] != step.name:
            yield not_reached(left.pop(0))
        left.pop(0)
        yield step
    yield from map(not_reached, left)


def _steps(
    config: SinkConfig, timeout_ms: int, clock: Clock | None, *, host_only: bool = False
) -> Iterator[Step]:
    """Runs the steps in their order, and yields their results. Ends early if a failed step makes
    the later steps impossible.
    """
    producer = config.producer
    with ConnectionProbe(producer) as probe:
        yield from step_of(_CLASSES, lambda: _classes(config, on_driver=not host_only))
        if not host_only:
            yield from step_of(_REPORT_PATH, lambda: _report_path(config.report_path))
        made = contact(probe, producer, timeout_ms)
        if made.best.failed not in (None, Stage.API) or made.best.timed_out:
            yield from connection(made, probe, producer)
            return
        config = replace(config, producer=made.producer)
        with AdminClient(config.producer, clock=clock) as admin:
            cluster = yield from answered(admin, probe, made, producer, timeout_ms)
            if cluster is None:
                return
            (reached,) = step_of(BROKERS, lambda: brokers(admin, probe, cluster, timeout_ms))
            yield reached
            if reached.state is StepState.FAILED:
                return
            if host_only:
                settings = settings_if_there(admin, config.topic, timeout_ms)
            else:
                settings = yield from topic_steps(admin, config, timeout_ms)
                yield from report_topic_step(admin, config, timeout_ms)
                yield progress_topic_step(admin, config, timeout_ms)
                yield from producer_id_step(admin, config, timeout_ms)
            yield from step_of(
                _CLOCK, lambda: _clock(admin, config, settings or {}, timeout_ms), optional=True
            )
            if not host_only:
                yield from step_of(_LETTERS, lambda: _letters(admin, config, timeout_ms))
    if not host_only:
        yield from step_of(_REGISTRY, lambda: _registry(config, timeout_ms))
        yield from transaction_steps(config, timeout_ms)


def _classes(config: SinkConfig, *, on_driver: bool) -> Step:
    """Imports the user's classes whose import paths are in options: interceptors, partitioners and
    listeners. If no option has such a path, the state of the result is SKIPPED.
    """
    count = check_own_code(config, on_driver=on_driver)
    return ok(_CLASSES, f"{count} imported") if count else skipped(_CLASSES, "no option names one")


def _report_path(path: str | None) -> Step:
    if path is None:
        return skipped(_REPORT_PATH, "no report is written to a file")
    check_report_path(path)
    missing = lacks(path)
    if missing is not None:
        said = f"{safe_text(path)} on this machine: {missing}; rows are written without a report"
        change = "create it, or check where the driver will run"
        return yellow(_REPORT_PATH, said, change, Kind.REPORT_NOT_WRITTEN)
    return ok(_REPORT_PATH, path)


def _letters(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Step:
    if config.dead_letters is None:
        return skipped(_LETTERS, "errors.tolerance is none")
    return ok(_LETTERS, queue_check(admin, config.dead_letters, timeout_ms))


def _registry(config: SinkConfig, timeout_ms: int) -> Step:
    """Checks that the registry returns the schemas of keys and values. Only the driver connects to
    a registry.
    """
    if config.schemas is None:
        return skipped(_REGISTRY, "no format has a schema")
    return ok(_REGISTRY, "; ".join(described(config, timeout_ms)))


def _clock(admin: AdminClient, config: SinkConfig, settings: Settings, timeout_ms: int) -> Step:
    """Compares this machine's clock with the clock of the active controller. No other broker
    reports its time.
    """
    try:
        found = clock_difference(admin, admin.deadline(timeout_ms))
    except AuthorizationError:
        return skipped(_CLOCK, "reading a broker's time needs DESCRIBE on the cluster")
    except UnsupportedVersionError:
        found = None
    if found is None:
        return skipped(_CLOCK, "brokers before 3.3, or with ZooKeeper, don't report it")
    warning = clock_warning(config.topic, settings or {}, found)
    if warning is not None:
        return warned(_CLOCK, warning)
    said = f"{found.ahead_ms:+d} ms versus broker {found.controller}'s, +-{found.error_ms} ms"
    return ok(_CLOCK, said)
