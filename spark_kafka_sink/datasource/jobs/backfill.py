"""``backfill``: writes a large DataFrame in steps, each step exactly once.

The steps become visible to consumers one after another. A backfill is never one transaction.

- ``backfill_plan.py`` divides the source into steps.
- ``backfill_ledger.py`` records the plan and the progress in the topic of the commit log. With
  these records, a later call continues where an earlier call stopped.

The batch writer of ``format("kprod")`` writes each step. The txnAppId of the write is the name of
the backfill, and its txnVersion is the version of the step.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from platform import node
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text, warn
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.option import OptionText
from spark_kafka_sink.config.option_table import SINK_OPTIONS
from spark_kafka_sink.config.sink_config import TXN_CONTEXT, TXN_GENERATION, DeliveryGuarantee
from spark_kafka_sink.datasource.jobs.backfill_ledger import (
    BegunStep,
    Caller,
    Progress,
    check_caller_is_alone,
)
from spark_kafka_sink.datasource.jobs.backfill_plan import (
    FIRST_ROWS,
    SLICES_OF_A_RANGE,
    SLICES_OF_A_STEP,
    BackfillPlan,
    StepSizes,
    step_too_long,
    took_too_long,
)
from spark_kafka_sink.datasource.jobs.backfill_request import BACKFILL, Claimed, LedgerOnDriver
from spark_kafka_sink.datasource.jobs.backfill_result import (
    BackfillResult,
    BackfillStep,
    StepLines,
    line_of,
)
from spark_kafka_sink.datasource.jobs.backfill_rows import (
    check_hash,
    check_slices,
    ranges_of,
    rows_between,
)
from spark_kafka_sink.datasource.jobs.backfill_source import FILES, OF_SOURCE, BackfillSource
from spark_kafka_sink.datasource.jobs.running_process import is_gone, this_process
from spark_kafka_sink.datasource.process.active_session import active_session
from spark_kafka_sink.transactions.transactional_ids import check_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

#: The interval in seconds in which a running call records a heartbeat.
_BEAT_S: Final = 10.0
#: The time in seconds without a new heartbeat after which another call takes over.
_SILENT_S: Final = 45.0
#: The interval in seconds in which the other call reads the heartbeat.
_LOOK_S: Final = 2.0
#: The largest value of the argument ``steps``.
_MOST_STEPS: Final = 10_000
_ITS_OWN: Final = frozenset(
    name.lower() for name in ("txnAppId", "txnVersion", TXN_CONTEXT, TXN_GENERATION, BACKFILL)
)
_GUARANTEE: Final = SINK_OPTIONS["deliveryGuarantee"]

#: The calls that run in this process.
_running: ProcessLocal[set[str]] = ProcessLocal(set)


def backfill(
    source: DataFrame | str,
    *,
    name: str,
    by: str | None = None,
    steps: int | None = None,
    transform: Callable[[DataFrame], DataFrame] | None = None,
    on_step: Callable[[BackfillStep], object] | None = None,
    **options: OptionText,
) -> BackfillResult:
    """Writes a large DataFrame in steps, each step exactly once. After a failure, call the function
    again with the same arguments: it continues with the first step that is not written.

        result = backfill("lake.orders", name="orders-2026", by="order_date",
                          topic="orders", valueColumns="*", **kafka)

    - ``source`` is a DataFrame, or the name of a table. If you give the name of a Delta or Iceberg
      table, all calls read the version that the table had at the first call.
    - ``name`` identifies the backfill. It is the txnAppId of the steps. No other job with the same
      transactionalIdPrefix may use this name in the Kafka cluster.
    - ``by`` is the name of a column. The values of this column divide the rows among the steps. If
      the table is partitioned by this column, a step reads only its own partitions.
    - ``steps`` is the intended number of steps. A hash divides the rows among the steps, and each
      step reads the whole source. Give either ``by`` or ``steps``.
    - ``transform`` is a function that gets the table as a DataFrame, and returns the DataFrame to
      write. Give ``transform`` only if ``source`` is the name of a table.
    - ``on_step`` is called with each written step. If it returns False, the backfill stops.
    - ``options`` are the options of the write.

    ``backfill`` chooses the size of a step from the duration of the previous step. A step should
    take at most a third of kafka.transaction.timeout.ms. If a step takes too long for its
    transaction, none of its rows becomes visible, and ``backfill`` replaces it by smaller steps.

    If the call runs in the main thread, SIGTERM stops the backfill after the current step. If steps
    are missing after a stop, the result has ``finished=False``.

    Steps that were written before an error stay written. Besides the errors of a write, raises:

    - ConfigError if an earlier call with this ``name`` had another plan.
    - ConfigError if another call with this ``name`` runs.
    - ConfigError before a step if the files of the source have changed since the first call.
    - CommitError if a step takes too long and can't be divided.
    - SupersededError if another call has taken over the backfill.
    """
    check_part("the name given to backfill", name)
    if (by is None) == (steps is None):
        raise ConfigError(
            "backfill needs one of by= and steps=",
            hint="by='order_date' cuts by a column, steps=40 by a hash of the row",
        )
    if steps is not None and not 1 <= steps <= _MOST_STEPS:
        raise ConfigError(f"steps={steps}: it is a number from 1 to {_MOST_STEPS}")
    if transform is not None and not isinstance(source, str):
        raise ConfigError(
            "transform= is for a source that is the name of a table",
            hint="apply the function to the DataFrame, and give the result to backfill",
        )
    _check(options)
    call = _Call(source, name, by or "", steps or 0, transform, on_step, options)
    return call.run()


class _Call:
    """One call of :func:`backfill`, which writes the remaining steps."""

    def __init__(
        self,
        source: DataFrame | str,
        name: str,
        by: str,
        steps: int,
        transform: Callable[[DataFrame], DataFrame] | None,
        on_step: Callable[[BackfillStep], object] | None,
        options: dict[str, OptionText],
    ) -> None:
        from pyspark.sql import SparkSession

        spark = SparkSession.active() if isinstance(source, str) else source.sparkSession
        self._source = BackfillSource(spark, source, transform)
        self._spark = spark
        self._name, self._by, self._steps = name, by, steps
        self._on_step = on_step
        self._options = {**options, _GUARANTEE.name: DeliveryGuarantee.EXACTLY_ONCE.value}
        self._caller = Caller(
            uuid.uuid4().hex, node(), os.getpid(), this_process(), int(time.time() * 1000)
        )
        self._ledger = LedgerOnDriver(spark, name, self._caller, self._options)
        self._written: list[BackfillStep] = []
        self._lines = _step_lines(spark, on_step)
        #: Why it stops between two steps; empty while it goes on.
        self._stop = ""
        self._lost: Exception | None = None

    def run(self) -> BackfillResult:
        claimed = self._claimed()
        _running().add(self._caller.id)
        try:
            with self._beating(), self._until_terminated():
                return self._run(claimed)
        finally:
            _running().discard(self._caller.id)
            if self._lines is not None:
                self._lines.end()
            try:
                self._ledger.release()
            except Exception as error:  # noqa: BLE001 - the next call takes over, if later
                _log.info("backfill '%s' could not be released: %s", self._name, error)

    def _run(self, claimed: Claimed) -> BackfillResult:
        progress, plan = claimed.progress, claimed.plan
        if plan is None:
            plan = self._planned(claimed)
            progress = self._ledger.begin(plan)
        else:
            self._check_plan(plan, claimed, reads=progress.at < plan.end)
        sizes = StepSizes(plan, claimed.timeout_ms, self._steps)
        if progress.step is not None:
            progress = self._ledger.fence().progress
        if progress.at and progress.ms:
            sizes.took(0, progress.at, progress.ms / 1000)
        while progress.at < plan.end and not self._stop:
            progress = self._step(plan, sizes, progress, claimed.timeout_ms)
        finished = progress.at >= plan.end
        result = BackfillResult(
            name=self._name,
            finished=finished,
            stopped_by="" if finished else self._stop,
            steps=progress.steps,
            rows=progress.rows,
            bytes=progress.bytes,
            seconds=progress.ms / 1000,
            written=tuple(self._written),
        )
        _log.info("%s", result)
        return result

    def _step(
        self, plan: BackfillPlan, sizes: StepSizes, progress: Progress, timeout_ms: int
    ) -> Progress:
        """Writes the next step, and returns the new progress.

        If the step takes too long for its transaction, none of its rows is written. Then the
        returned progress has the same ``at`` as before, and the next step is smaller. Raises
        CommitError if the step already had the smallest size, one slice of rows.
        """
        if self._lost is not None:
            raise self._lost
        first, end = progress.at, sizes.next_end(progress.at)
        self._source.check(plan.pin, plan.facts.get(FILES))
        rows = rows_between(
            self._source.rows(plan.pin), first, end, slices=plan.slices,
            by=plan.by, type_name=plan.by_type, bounds=plan.bounds,
        )  # fmt: skip
        step = self._ledger.step(end)
        begun = time.monotonic()
        try:
            self._write(rows, step)
        except Exception as error:
            seconds = time.monotonic() - begun
            if not took_too_long(str(error), seconds, timeout_ms):
                raise
            settled = self._ledger.fence()
            if settled.progress.at == first:
                if end - first == 1:
                    raise step_too_long(
                        self._name, str(error), seconds, timeout_ms, by_column=bool(self._by)
                    ) from error
                sizes.was_too_long(first, end)
                warn(
                    _log,
                    Kind.STEP_CUT,
                    "backfill '%s': step %d took %.0f s, too long for kafka.transaction.timeout.ms "
                    "(%d); nothing of it is visible, and the next ones are a quarter of it",
                    self._name, step.version, seconds, timeout_ms,
                )  # fmt: skip
                return settled.progress
        else:
            seconds = time.monotonic() - begun
            settled = self._ledger.settle(int(seconds * 1000))
        sizes.took(first, end, seconds)
        self._note(
            settled.progress,
            BackfillStep(
                version=step.version,
                rows=settled.payload.rows if settled.payload else 0,
                bytes=settled.payload.bytes if settled.payload else 0,
                seconds=seconds,
                share=plan.weight(0, end) / (plan.weight(0, plan.end) or 1.0),
            ),
        )
        return settled.progress

    def _note(self, progress: Progress, step: BackfillStep) -> None:
        """Logs a written step, and passes it to the user's function ``on_step``."""
        self._written.append(step)
        line = line_of(self._name, progress, step)
        _log.info("%s", line)
        if self._lines is not None:
            self._lines.show(line)
        if self._on_step is not None and self._on_step(step) is False and not self._stop:
            self._stop = "on_step returned False"

    def _write(self, rows: DataFrame, step: BegunStep) -> None:
        writer = (
            rows.write.format("kprod")
            .options(**self._options)
            .option("txnAppId", self._name)
            .option("txnVersion", step.version)
            .option(TXN_GENERATION, step.generation)
            .mode("append")
        )
        with active_session(self._spark):
            writer.save()

    def _planned(self, claimed: Claimed) -> BackfillPlan:
        pin = self._source.pin()
        rows = self._source.rows(pin)
        check_hash(rows)
        facts = self._facts(pin, claimed)
        if not self._by:
            check_slices(rows)
            return BackfillPlan(SLICES_OF_A_STEP * self._steps, pin=pin, facts=facts)
        found = ranges_of(rows, self._by)
        if max(found.rows, default=0) > FIRST_ROWS:
            check_slices(rows)
        return BackfillPlan(
            SLICES_OF_A_RANGE, self._by, found.type_name, found.bounds, found.rows, pin, facts
        )

    def _facts(self, pin: str, claimed: Claimed, *, reads: bool = True) -> dict[str, str]:
        cut = {"by": self._by} if self._by else {"steps": str(self._steps)}
        of_source = self._source.facts(pin) if reads else {}
        return {**claimed.facts, **cut, **of_source}

    def _check_plan(self, plan: BackfillPlan, claimed: Claimed, *, reads: bool) -> None:
        """Raises ConfigError if the plan of this call differs from the recorded plan of the first
        call.

        ``reads`` is false for a finished backfill. Its source may no longer exist, so the
        properties of the source are not compared.
        """
        facts = self._facts(plan.pin, claimed, reads=reads)
        if not reads:
            facts |= {one: plan.facts[one] for one in OF_SOURCE if one in plan.facts}
        if difference := plan.difference(facts):
            raise ConfigError(
                f"the backfill '{self._name}' has another plan: {safe_text(difference, 1000)}",
                hint="call it as it was called first, or choose a new name: then all rows are "
                f"written once more; 'kprod backfill {self._name}' shows the plan",
                kind=Kind.BACKFILL_PLAN,
            )

    def _claimed(self) -> Claimed:
        """Makes this call the owner of the backfill, and returns the driver's answer. Raises
        ConfigError if another call of the backfill still runs.

        May block for ``_SILENT_S`` seconds if another call is recorded as the owner. In this time
        the method finds out whether the owner still increments its heartbeat. If the owner's
        process is known to have ended, the method does not wait.
        """
        found = self._ledger.claim({})
        other = found.progress.caller
        if other is None or other.id == self._caller.id:
            return found
        if is_gone(other.process) or (
            other.process and other.process == this_process() and other.id not in _running()
        ):
            found = self._ledger.claim({other.id: None})
        else:
            _log.info("backfill '%s': looks whether %s is alive", self._name, other)
            beat, until = found.progress.beat, time.monotonic() + _SILENT_S
            while time.monotonic() < until and found.progress.beat == beat:
                threading.Event().wait(_LOOK_S)
                found = self._ledger.claim({})
                if found.progress.caller is None or found.progress.caller.id != other.id:
                    break
            else:
                found = self._ledger.claim({other.id: beat})
        check_caller_is_alone(self._name, self._caller, found.progress)
        return found

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """A context manager with a thread that regularly records a heartbeat in the ledger. The
        heartbeat shows other calls that this call still runs. If another call has taken over the
        backfill, the thread sets ``_lost`` to the ledger's error and ends.
        """
        over = threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT_S):
                try:
                    self._ledger.beat()
                except Exception as error:  # noqa: BLE001 - raised before the next step
                    if getattr(error, "kind", None) is Kind.BACKFILL_RUNS:
                        self._lost = error
                        return
                    _log.info("backfill '%s' could not count up: %s", self._name, error)

        thread = threading.Thread(target=beat, name="kprod-backfill", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_SILENT_S)

    @contextmanager
    def _until_terminated(self) -> Iterator[None]:
        """A context manager that makes SIGTERM end the backfill after the running step. A second
        SIGTERM ends the process as usual. Outside of the main thread, SIGTERM is not changed.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(_number: int, _frame: object) -> None:
            self._stop = "SIGTERM"
            signal.signal(signal.SIGTERM, before)

        before = signal.signal(signal.SIGTERM, stop)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)


def _step_lines(
    spark: SparkSession, on_step: Callable[[BackfillStep], object] | None
) -> StepLines | None:
    """Creates the output on stderr that shows the user each written step.

    - In a terminal, each line replaces the line before. But if the user gives ``on_step``, or if
      Spark shows its progress bar, all lines stay.
    - In a notebook, all lines stay.
    - Anywhere else, all lines stay if the log level INFO is not enabled. If it is enabled, the log
      shows the steps, and the result is None.
    """
    stream = sys.stderr
    if stream.isatty():
        has_bar = spark.conf.get("spark.ui.showConsoleProgress", "false") == "true"
        return StepLines(stream, rewrites=on_step is None and not has_bar)
    if "IPython" in sys.modules or not _log.isEnabledFor(logging.INFO):
        return StepLines(stream, rewrites=False)
    return None


def _check(options: dict[str, OptionText]) -> None:
    for key, value in options.items():
        if key.lower() in _ITS_OWN:
            raise ConfigError(
                f"backfill sets {safe_text(key)} itself: to its name, and to the step's number",
                hint="remove it from the options",
            )
        if key.lower() == _GUARANTEE.name.lower() and (
            _GUARANTEE.read(value, _GUARANTEE.name) != DeliveryGuarantee.EXACTLY_ONCE
        ):
            raise ConfigError(
                f"backfill is exactly-once, and deliveryGuarantee is {safe_text(str(value))}",
                hint="for another guarantee, write the DataFrame with df.write",
            )
