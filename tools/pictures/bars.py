"""Bars and tables of bench/HISTORY.md: the median ratio to a peer, with its interval."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.statistics import level
from tools.pictures.drawing import Drawing

HISTORY = Path(__file__).resolve().parents[2] / "bench/HISTORY.md"
_HEAD = re.compile(r"^## (\d{4}-\d\d-\d\d), commit ([0-9a-f]{7})", re.MULTILINE)
_ROW = re.compile(
    r"^\| ([^|]+) \| ([\d,]+) rows/s \| ([\d,]+) rows/s \(([^|]+)\) \|"
    r" ([\d.]+)x \(([\d.]+)-([\d.]+), n=(\d+)\) \|$",
    re.MULTILINE,
)
_ONE_ROUND = re.compile(r" \([\d.]+-[\d.]+, n=1\)")
_INTERVAL = re.compile(r"x \(([\d.]+)-([\d.]+)")
_CPU = re.compile(
    r"^\| ([^|]+) \| [\d.]+ (?:us CPU a row|client CPU s) \| [^|(]+ \(([^|]+)\) \| ([^|]+) \|$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """kprod's rows a second over a peer's, the median of ``rounds`` and its interval; and of the
    CPU of the same rounds (``-`` where it was not measured).
    """

    what: str
    peer: str
    ours: int
    theirs: int
    middle: float
    low: float
    high: float
    rounds: int
    day: str
    commit: str
    cpu: str

    def __str__(self) -> str:
        if self.rounds == 1:  # no interval comes of one round
            return f"{self.middle:.2f}x"
        return f"{self.middle:.2f}x ({self.low:.2f}-{self.high:.2f})"

    def told(self) -> str:
        """For a sentence: the interval, and whether it shows a difference at all."""
        level = ", no difference shown" if self.low <= 1 <= self.high else ""
        return f"{self.middle:.2f}x ({self.low:.2f}-{self.high:.2f}{level})"


def newest(peers: tuple[str, ...], beginning: str) -> list[Ratio]:
    """The newest measurement of each setting that starts with ``beginning``, for each peer."""
    text = HISTORY.read_text(encoding="utf-8")
    found: dict[tuple[str, str], Ratio] = {}
    heads = list(_HEAD.finditer(text))
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        part = text[head.end() : after.start() if after else len(text)]
        cpu = {(what, peer): quotient for what, peer, quotient in _CPU.findall(part)}
        for what, ours, theirs, peer, middle, low, high, rounds in _ROW.findall(part):
            if what.startswith(beginning) and peer in peers:
                row = Ratio(
                    what, peer, int(ours.replace(",", "")), int(theirs.replace(",", "")),
                    float(middle), float(low), float(high), int(rounds), head[1], head[2],
                    _plain(_ONE_ROUND.sub("", cpu.get((what, peer), "-"))),
                )  # fmt: skip
                found.setdefault((what, peer), row)
    return sorted(found.values(), key=lambda row: (row.what, peers.index(row.peer)))


SPARK_PEERS = ("Spark's sink, defaults", "Spark's sink, tuned")
ENGINE_PEERS = ("Java ProducerPerformance", "confluent-kafka produce()")


#: What the pictures show; the tables have every setting.
_SHOWN = ("Spark, 100 B values", "Spark, 100 B values, lz4", "Spark, 1 KB values")
_PARTITIONS = ", 12 partitions"


def spark() -> str:
    rows = {row.what: row for row in newest(SPARK_PEERS[:1], "Spark")}
    bars = [(what.removeprefix("Spark, "), rows[what]) for what in _SHOWN]
    return _bars("bench-spark", bars, "Spark's own sink")


def engine() -> str:
    rows = _engines(by_partitions=False)
    bars = [
        (f"{row.what.removeprefix('engine, ').removesuffix(_PARTITIONS)}, next to {row.peer}", row)
        for row in rows
        if row.what.endswith(_PARTITIONS)
    ]
    return _bars("bench-engine", bars, "other producers")


def _engines(*, by_partitions: bool) -> list[Ratio]:
    """The settings of the part ``partitions``, whose names end with brokers; or the others."""
    rows = newest(ENGINE_PEERS, "engine")
    return [row for row in rows if row.what.endswith(("broker", "brokers")) == by_partitions]


def page_lines() -> Iterator[str]:
    """docs/benchmarks.md: the pictures, and the figures behind them."""
    yield (
        "`kprod` is this package. This page compares its speed and its CPU time with another producer"
        " (the *peer*) on the same machine, with the same topic and data. The last section compares"
        " the guarantees exactly-once and at-least-once of `kprod`."
    )
    yield from (
        "",
        '!!! note "Compare ratios, and not rows per second"',
        "    The Kafka clients and the brokers shared two cores of one machine, so your cluster will have other rows per second. The ratios can differ too. To measure on your machine, run `make bench` in a clone of the repository.",
        "",
        "In each round of a measurement, all producers write the same rows, one producer after the other. The columns of the tables:",
        "",
        "* *rows/s*: the rows per second of a producer, the median over the rounds.",
        "* *kprod / peer*: the rows per second of `kprod`, divided by those of the peer. 2x means that `kprod` is twice as fast.",
        "* *client CPU, kprod / peer*: the CPU time of `kprod`, divided by that of the peer. In Spark, this is the CPU time of the Spark job. Without Spark, it is the CPU time of the program that writes the rows. 0.5x means that `kprod` needs half the CPU time of the peer.",
        "",
        "Each ratio in a table is the median of the ratios of all rounds. So it is not the quotient of the two numbers in the columns *rows/s*. The brackets after a ratio have its confidence interval. If the interval includes 1, the measurement shows no difference.",
    )
    yield from (
        "",
        "## In Spark, next to Spark's own sink",
        "",
        "![Rows a second of kprod as a multiple of Spark's own sink, by size of the values, with intervals.](pictures/benchmark-spark.svg)",
    )
    yield from (
        "",
        "In the picture, the peer is Spark's sink with its default options.",
        "",
        "The words in the table:",
        "",
        "* *defaults*: Spark's sink has its default options.",
        "* *tuned*: Spark's sink has a larger `batch.size` (1 MiB) and `linger.ms` (50 ms) than by default.",
        "* *10 tasks*: the job has 10 tasks. The other jobs have 2 tasks. In all jobs, at most two tasks run at the same time.",
        "* *tune=True*: the session has called `register(spark, tune=True)`, which makes [Spark's Arrow batches smaller](tuning.md#sparks-side).",
        "* *Unix socket*: Spark sends the rows to its Python workers over a Unix socket, and not over TCP.",
        "* *lz4*: both sinks have the option `kafka.compression.type=lz4`.",
    )
    yield from ("", *_table(newest(SPARK_PEERS, "Spark")))
    yield from (
        "",
        "## The producer without Spark",
        "",
        "![Rows a second of kprod's producer as a multiple of Java's and of confluent-kafka's, with intervals.](pictures/benchmark-engine.svg)",
    )
    yield from (
        "",
        "A Python program can use the [producer of kprod](python-producer.md). Here, the method `send_batch` of this producer gets the rows as Arrow batches.",
    )
    yield from ("", *_table(_engines(by_partitions=False)))
    yield from (
        "",
        "The method `send` gets one record at a time, and needs more CPU time for a record than `send_batch`. This table compares `send` with similar methods of other clients:",
        "",
        "| peer | client CPU, kprod / peer |",
        "|---|---|",
        f"| `produce` of confluent-kafka | {_send('confluent-kafka')} |",
        f"| `send` of kafka-python | {_send('kafka-python')} |",
    )
    yield from (
        "",
        "## By the number of partitions",
        "",
        "These measurements are also without Spark. If a program writes to thousands of partitions, each Arrow batch has only a few rows for each partition, and `kprod` needs more CPU time for a row ([tuning](tuning.md#small-arrow-batches-many-partitions)). A ratio near 1 shows no difference.",
        "",
        *_table(_engines(by_partitions=True)),
    )
    yield from ("", "## What exactly-once adds", "", *_exactly_once(), "")
    yield "[The history of measurements](../bench/HISTORY.md) has measurements that this page does not show."


def figures() -> dict[str, str]:
    """The figures that other pages quote, by the names in their marks (tools/figures.py)."""
    rows = sorted(newest(SPARK_PEERS, "Spark"), key=lambda row: row.day)
    ratios = {(row.what, row.peer): row.told() for row in rows}
    defaults, tuned = SPARK_PEERS
    small, lz, large = _SHOWN
    days = [row.day for row in rows if row.what in _SHOWN and row.peer == defaults]
    added = {what: difference for what, _, _, difference in _exactly_once_rows()}
    return {
        "spark": f"{ratios[small, defaults]} at 100 B, {ratios[lz, defaults]} at 100 B with lz4,"
        f" {ratios[large, defaults]} at 1 KB",
        **{
            f"{name}-{values}": ratios[what, peer]
            for name, peer in (("spark-defaults", defaults), ("spark-tuned", tuned))
            for values, what in (("small", small), ("lz", lz), ("large", large))
        },
        "measured": " to ".join(sorted({days[0], days[-1]})),
        "exactly-once-job": _told(added["job of 30 M rows, 1 / s"]),
        "exactly-once-micro-batch": _plain(added["micro-batch, p50"]),
    }


def _send(peer: str) -> str:
    """The CPU of a record at a time, next to a peer's."""
    line = rf"^\| engine, send\(\),[^|]*\|[^|]*CPU a row \|[^|]*\({peer}\) \| ([^|]+) \|$"
    found = re.search(line, HISTORY.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"bench/HISTORY.md: no send() next to {peer}"
    return _plain(found[1])


def _told(ratio: str) -> str:
    """As :meth:`Ratio.told`, of a cell of the history."""
    found = _INTERVAL.search(ratio)
    assert found is not None, ratio
    low, high = map(float, found.groups())
    return _plain(ratio).replace(")", ", no difference shown)" if low <= 1 <= high else ")")


def _plain(difference: str) -> str:
    return re.sub(r", n=\d+\)", ")", difference)


def _table(rows: list[Ratio]) -> Iterator[str]:
    """Rows a second and their quotient, and where the figures are from."""
    names = {row.peer.partition(",")[0] for row in rows}
    peer = names.pop() if len(names) == 1 else ""
    yield f"| what | kprod, rows/s | {peer or 'peer'}, rows/s | kprod / peer | client CPU, kprod / peer |"
    yield "|---|---|---|---|---|"
    for row in rows:
        what = row.what.removeprefix("Spark, ").removeprefix("engine, ")
        which = row.peer.removeprefix(peer).removeprefix(", ")
        theirs = f"{which}: {row.theirs:,}" if which else f"{row.theirs:,}"
        yield f"| {what} | {row.ours:,} | {theirs} | {row} | {row.cpu} |"
    yield from ("", *_measured(rows))


def _measured(rows: list[Ratio]) -> Iterator[str]:
    """The day, commit and rounds of ``rows``: a sentence, or a list if they differ."""
    runs: dict[tuple[str, str, int], dict[str, None]] = {}
    for row in rows:
        what = row.what.removeprefix("Spark, ").removeprefix("engine, ")
        runs.setdefault((row.day, row.commit, row.rounds), {})[what] = None
    if len(runs) == 1:
        yield f"Measured {_run(*next(iter(runs)))}."
        return
    most = max(runs, key=lambda run: len(runs[run]))
    yield "The measurements:"
    yield ""
    for run in sorted(runs, key=lambda run: (run == most, run)):
        names = "all other rows" if run == most else ", and ".join(f"*{w}*" for w in runs[run])
        yield f"* {names}: {_run(*run)}"


def _run(day: str, commit: str, rounds: int) -> str:
    shown = (
        "in one round, so there are no intervals"
        if rounds == 1
        else f"in {rounds} rounds (confidence level of the intervals: {int(100 * level(rounds))} %)"
    )
    return f"on {day} with the commit {commit}, {shown}"


def _exactly_once() -> Iterator[str]:
    yield "Each figure is a median over *n* rounds. The range goes from the smallest to the largest result of a round."
    yield ""
    yield "This table shows how long the driver needs to commit the transactions of a batch. Each transaction has one row."
    yield ""
    yield "| what | time | range |"
    yield "|---|---|---|"
    rows = list(_exactly_once_rows())
    for what, ours, theirs, difference in rows:
        if theirs == "-":
            low_to_high, _, rounds = difference.partition(", n=")
            yield f"| {what.removeprefix('the driver commits ')} | {ours} | {low_to_high} s (n={rounds}) |"
    yield ""
    yield "Jobs and micro-batches:"
    yield ""
    yield "| what | exactly-once | at-least-once | exactly-once compared with at-least-once |"
    yield "|---|---|---|---|"
    for what, ours, theirs, difference in rows:
        if theirs != "-":
            yield f"| {what.removesuffix(', 1 / s').replace(', p50', ', median')} | {ours} | {theirs} | {difference} |"
    yield ""
    yield "The last column has the median of the ratios or differences of all rounds, and their range in brackets:"
    yield ""
    yield "* **Job of 30 M rows**: the ratio of the speeds in jobs per second. Below 1, exactly-once is slower. If the range includes 1, the measurement shows no difference."
    yield "* **Job of 1000 rows** and **micro-batch**: the additional time with exactly-once. If the range includes 0, the measurement shows no difference."


def _exactly_once_rows() -> Iterator[tuple[str, str, str, str]]:
    """The newest line of each measurement next to at-least-once, and of the driver's commits."""
    seen = set()
    line = re.compile(
        r"^\| exactly-once: ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
    )
    for what, ours, theirs, difference in line.findall(HISTORY.read_text(encoding="utf-8")):
        if what not in seen:
            seen.add(what)
            yield what, ours, theirs.replace(" (at-least-once)", ""), difference


def _bars(name: str, bars: list[tuple[str, Ratio]], peers: str) -> str:
    """A bar for each ratio, with its label above it: on a phone, both are still readable."""
    on = Drawing(
        name, 520, 50 + 68 * len(bars), f"Rows a second of kprod, as a multiple of {peers}"
    )
    left, most = 2, max(row.high for _, row in bars)
    unit = 500 / most
    for number in range(1, int(most) + 1):
        x = left + unit * number
        on.line(x, 30, x, 38 + 68 * len(bars), "dashed" if number != 1 else "")
        on.text(x, 22, f"{number}x" if number != 1 else "1x: equal", "large soft", "middle")
    for number, (label, row) in enumerate(bars):
        y = 64 + 68 * number
        on.text(left, y - 8, label, "large")
        on.rect(left, y, unit * row.middle, 32, "own")
        on.line(left + unit * row.low, y + 16, left + unit * row.high, y + 16, "interval")
        for end in (row.low, row.high):
            on.line(left + unit * end, y + 9, left + unit * end, y + 23, "interval")
        on.text(left + 10, y + 22, f"{row.middle:.2f}x", "large title")
    return on.svg()
