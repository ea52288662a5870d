"""A progress bar for long writes, in a terminal or a notebook (extra ``progress``).

The numbers of tasks come from Spark's status, and the numbers of rows from the topic of the option
progressTopic (``running_writes``).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError, coded, warn_once
from spark_kafka_sink.datasource.monitoring.library_needed import library_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrites

_log = logging.getLogger(__name__)

#: The interval in seconds in which the bar is drawn. Each time costs a Fetch request if the bar
#: shows rows.
_LOOK_S: Final = 1.0
#: The number of finished tasks, and the number of all tasks.
Share = tuple[int, int]


class Display(Protocol):
    """A display of progress. It shows the number of finished tasks, the number of all tasks (0 if
    unknown), and a text.
    """

    def update(self, done: int, total: int, text: str) -> None: ...

    def close(self) -> None: ...


@contextmanager
def show_progress(
    spark: SparkSession, options: Mapping[str, str] | None = None, *, file: TextIO | None = None
) -> Iterator[None]:
    """A context manager that shows a progress bar while the ``with`` block runs. The bar has the
    number of finished tasks in Spark's active stages. If ``options`` contain progressTopic, it also
    has rows, MB/s and retries.

        with show_progress(spark, options):
            df.write.format("kprod").options(**options).save()

    The bar appears in a notebook, or on ``file`` (default: standard error) if that is a terminal.
    Anywhere else there is no bar, and no figures are requested. The bar works with classic and
    Connect sessions.

    In a terminal, raises ImportError if the extra ``progress`` is not installed.
    """
    display = _display(file or sys.stderr)
    if display is None:
        yield
        return
    rows = _rows_of(spark, options)  # an error of the options is raised before anything is drawn
    tasks = _tasks_of(spark)
    over = threading.Event()
    thread = threading.Thread(
        target=_draw, args=(display, tasks, rows, over), name="kprod-progress-bar", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(_LOOK_S * 30)
        if isinstance(tasks, _ConnectTasks):
            tasks.close()


def _draw(
    display: Display,
    tasks: Callable[[], Share],
    rows: RunningWrites | None,
    over: threading.Event,
) -> None:
    begun, last = time.monotonic(), (0, 0)
    try:
        while not over.wait(_LOOK_S):
            now = tasks()
            last = now if now[1] else last  # between two stages none is active
            display.update(*last, text_of(last, rows, time.monotonic() - begun))
    except Exception:  # noqa: BLE001 - the session was stopped, or the file is closed
        _log.debug("the progress can't be shown any more", exc_info=True)
    finally:
        display.close()
        if rows is not None:
            rows.close()


def text_of(share: Share, rows: RunningWrites | None, seconds: float) -> str:
    """The text after the bar: finished tasks and all tasks (``share``), rows, rates, retries, and
    ``seconds`` as minutes and seconds. Rows and rates are missing if ``rows`` is None.
    """
    parts = [f"{share[0]} of {share[1]} tasks"] if share[1] else []
    for one in _read(rows):
        parts.append(f"{one.rows:,} rows")
        if one.rows_per_second:  # 0 is also that of the first look
            parts.append(f"{one.rows_per_second:,.0f} rows/s")
            parts.append(f"{one.megabytes_per_second:.1f} MB/s")
        if one.retries:
            parts.append(f"{one.retries} batches sent again")
        if one.commit_ms:
            parts.append(f"commits for {one.commit_ms // 1000} s")
    parts.append(f"{int(seconds) // 60}:{int(seconds) % 60:02}")
    return ", ".join(parts)


def _read(rows: RunningWrites | None) -> list[Any]:
    if rows is None:
        return []
    try:
        return list(rows.read())
    except KafkaError as error:
        text = f"the progress of tasks can't be read: {error.message}"
        warn_once(_log, [coded(Kind.REPORT_NOT_WRITTEN, text, error.hint)])
        return []


def _rows_of(spark: SparkSession, options: Mapping[str, str] | None) -> RunningWrites | None:
    names = {name.lower() for name in options or ()}
    if options is None or "progresstopic" not in names:
        return None
    from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrites

    return RunningWrites(spark, options)


def _tasks_of(spark: SparkSession) -> Callable[[], Share]:
    """Returns a function that counts the tasks in Spark's active stages. The function returns the
    number of finished tasks, and the number of all tasks.
    """
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # noqa: BLE001 - Connect has no context
        return _ConnectTasks(spark)

    def active() -> Share:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        known = [one for one in stages if one is not None]
        return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)

    return active


class _ConnectTasks:
    """A callable that counts the tasks in Spark's active stages, with Spark Connect. The result is
    the number of finished tasks, and the number of all tasks. Spark passes both numbers to a
    progress handler of the session while an operation runs.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._share: Share = (0, 0)
        self._spark = spark
        spark.registerProgressHandler(self._progress)  # type: ignore[arg-type] # by keyword

    def _progress(self, *, stages: Iterable[Any] | None = None, **_: object) -> None:
        open_ = [one for one in stages or () if not one.done]
        self._share = (
            sum(one.num_completed_tasks for one in open_),
            sum(one.num_tasks for one in open_),
        )

    def __call__(self) -> Share:
        return self._share

    def close(self) -> None:
        """Removes the handler from the session."""
        self._spark.removeProgressHandler(self._progress)  # type: ignore[arg-type] # by keyword


def _display(file: TextIO) -> Display | None:
    if (notebook := _in_notebook()) is not None:
        return notebook
    return _Terminal(file) if file.isatty() else None


class _Terminal:
    """A progress bar of ``rich``, which disappears at the end."""

    def __init__(self, file: TextIO) -> None:
        try:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn
        except ImportError as error:
            raise library_needed(error, "progress bars", "progress") from None
        self._progress = Progress(
            BarColumn(), TextColumn("{task.description}"),
            console=Console(file=file), transient=True, auto_refresh=False,
            redirect_stdout=False, redirect_stderr=False,
        )  # fmt: skip
        self._task = self._progress.add_task("", total=None)

    def update(self, done: int, total: int, text: str) -> None:
        self._progress.start()  # again is nothing
        self._progress.update(
            self._task, completed=done, total=total or None, description=text, refresh=True
        )

    def close(self) -> None:
        self._progress.stop()


class _Notebook:
    """A progress bar in the output of a notebook cell. Needs only IPython, which every notebook
    has.
    """

    def __init__(self, handle: Any) -> None:  # noqa: ANN401 - IPython's
        self._handle = handle

    def update(self, done: int, total: int, text: str) -> None:
        self._handle.update(_Html(done, total, text))

    def close(self) -> None:
        """Ends the display. The last bar stays visible."""


class _Html:
    def __init__(self, done: int, total: int, text: str) -> None:
        value = f' value="{done}" max="{total}"' if total else ""
        self._html = f"<progress{value}></progress> {escape(text)}"
        self._text = text

    def _repr_html_(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return self._text


def _in_notebook() -> _Notebook | None:
    """A display for a notebook. Returns None outside a Jupyter kernel, because IPython's terminal
    can't show HTML.
    """
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or "IPKernelApp" not in getattr(shell, "config", {}):
        return None
    from IPython.display import display

    return _Notebook(display(_Html(0, 0, ""), display_id=True))  # type: ignore[no-untyped-call]
