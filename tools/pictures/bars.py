"""Bars and tables of bench/HISTORY.md: the median ratio to a peer, with its interval."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
    """The newest measurement of each thing that ``beginning`` begins, next to each peer."""
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


def spark() -> str:
    rows = [row for row in newest(SPARK_PEERS, "Spark") if "Unix socket" not in row.what]
    return _bars("bench-spark", rows, "Spark's own sink")


def engine() -> str:
    return _bars("bench-engine", _engines(by_partitions=False), "other producers")


def _engines(*, by_partitions: bool) -> list[Ratio]:
    """The settings of the part ``partitions``, whose names end with brokers; or the others."""
    rows = newest(ENGINE_PEERS, "engine")
    return [row for row in rows if row.what.endswith(("broker", "brokers")) == by_partitions]


def page_lines() -> Iterator[str]:
    """docs/benchmarks.md: the pictures, and the figures behind them."""
    yield (
        "Rows a second of `kprod`, as a multiple of another producer's on the same machine, topic and"
        " data: the median of the rounds' ratios, and its 96 % interval. Client and broker shared two"
        " cores of one machine (Python 3.11.7), so they compare producers and say nothing about your"
        " cluster. `make bench` measures on yours."
    )
    yield from (
        "",
        "## In Spark, next to Spark's own sink",
        "",
        "![Rows a second of kprod as a multiple of Spark's own sink, by size of the values, with intervals.](pictures/benchmark-spark.svg)",
    )
    yield from (
        "",
        "*Defaults* is Spark's sink as it comes, *tuned* the same with a `batch.size` of 1 MiB and a `linger.ms` of 50.",
    )
    yield from ("", *_table(newest(SPARK_PEERS, "Spark")))
    yield from (
        "",
        "## The producer alone, fed with columns",
        "",
        "![Rows a second of kprod's producer as a multiple of Java's and of confluent-kafka's, with intervals.](pictures/benchmark-engine.svg)",
    )
    yield from (
        "",
        f"A record at a time (`KafkaProducer.send`) is another matter: it costs {_send('confluent-kafka')} the CPU of confluent-kafka's `produce`, and {_send('kafka-python')} that of kafka-python.",
    )
    yield from ("", *_table(_engines(by_partitions=False)))
    yield from (
        "",
        "## By the number of partitions",
        "",
        "Batches of a task that writes to thousands of partitions have few rows, and each costs a fixed time: [tuning](tuning.md#small-arrow-batches-many-partitions).",
        "",
        *_table(_engines(by_partitions=True)),
    )
    yield from ("", "## What exactly-once adds", "", *_exactly_once(), "")
    yield "[The history](../bench/HISTORY.md) has every run, what was tried, and what did not help."


def figures() -> dict[str, str]:
    """What other pages say of speed, by the names in their marks (tools/figures.py)."""
    rows = [*newest(SPARK_PEERS, "Spark"), *newest(ENGINE_PEERS, "engine")]
    rows.sort(key=lambda row: row.day)
    ratios = {(row.what, row.peer): row.told() for row in rows}
    defaults, tuned = SPARK_PEERS
    java, confluent = ENGINE_PEERS
    small, large = "Spark, 100 B values", "Spark, 1 KB values"
    engine_small = "engine, 100 B values, 12 partitions"
    engine_large = "engine, 1 KB values, 12 partitions"
    added = {what: difference for what, _, _, difference in _exactly_once_rows()}
    return {
        "spark": f"{ratios[small, defaults]} at 100 B, {ratios[f'{small}, lz4', defaults]} with"
        f" lz4, {ratios[large, defaults]} at 1 KB",
        "spark-tuned": f"{ratios[small, tuned]}, {ratios[f'{small}, lz4', tuned]},"
        f" {ratios[large, tuned]}",
        "engine-java": f"{ratios[engine_small, java]} at 100 B, {ratios[engine_large, java]} at 1 KB",
        "engine-confluent": f"{ratios[engine_small, confluent]} at 100 B,"
        f" {ratios[engine_large, confluent]} at 1 KB",
        "send": f"{_send('confluent-kafka')} the CPU of confluent-kafka's",
        "measured": " to ".join(sorted({rows[0].day, rows[-1].day})),
        "exactly-once": f"{_told(added['job of 30 M rows, 1 / s'])} of the rows/s in a job of 30 M"
        f" rows, {_plain(added['micro-batch, p50'])} in a micro-batch",
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
    runs = sorted({f"{row.day} at {row.commit}" for row in rows})
    rounds = " or ".join(str(number) for number in sorted({row.rounds for row in rows}))
    shown = "one round each, so without intervals" if rounds == "1" else f"{rounds} rounds each"
    yield from ("", f"Measured on {', '.join(runs)}, {shown}.")


def _exactly_once() -> Iterator[str]:
    yield "| what | exactly once | at least once | difference |"
    yield "|---|---|---|---|"
    for what, ours, theirs, difference in _exactly_once_rows():
        yield f"| {what} | {ours} | {theirs} | {difference} |"


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


def _bars(name: str, rows: list[Ratio], peers: str) -> str:
    height = 62 + 52 * len(rows)
    on = Drawing(name, 920, height, f"Rows a second of kprod, as a multiple of {peers}")
    left, unit = 330, 540 / max(row.high for row in rows)
    for number in range(int(max(row.high for row in rows)) + 1):
        x = left + unit * number
        on.line(x, 30, x, height - 12, "dashed" if number != 1 else "")
        on.text(x, 22, f"{number}x" if number != 1 else "1x: equal", "soft", "middle")
    for number, row in enumerate(rows):
        y = 44 + 52 * number
        on.text(
            left - 12,
            y + 14,
            row.what.removeprefix("Spark, ").removeprefix("engine, "),
            "title",
            "end",
        )
        on.text(left - 12, y + 31, f"next to {row.peer}", "soft", "end")
        on.rect(left, y, unit * row.middle, 32, "own")
        on.line(left + unit * row.low, y + 16, left + unit * row.high, y + 16, "interval")
        for end in (row.low, row.high):
            on.line(left + unit * end, y + 9, left + unit * end, y + 23, "interval")
        on.text(left + 8, y + 21, f"{row.middle:.2f}x", "title")
    return on.svg()
