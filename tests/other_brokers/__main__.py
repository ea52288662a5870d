"""``make compat``: the scenarios on each broker, and on Kafka with each PySpark.

    python -m tests.other_brokers [--broker NAME ...] [--pyspark VERSION ...] [--scenario NAME ...]

Cells that ran replace theirs in ``results.json``; the table of RESULTS.md is made of it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any, Final

from spark_kafka_sink.local_kafka import KAFKA_VERSION
from tests.other_brokers.brokers import BROKERS, Running, apache
from tests.other_brokers.scenarios import SCENARIOS, WITH_SPARK

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).with_name("RESULTS.md")
BEGIN, END = "<!-- make compat writes from here -->", "<!-- to here -->"
#: PySpark's own tests are run by ``make sparks``.
_ROW_S: Final = 900


def run_row(name: str, broker: Running, python: str, scenarios: Sequence[str]) -> None:
    """The cells of a row: each is shown and kept as it comes."""
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python}
    left = list(scenarios)
    with (
        broker as bootstrap,
        subprocess.Popen(
            [python, "-m", "tests.other_brokers.scenarios", bootstrap, *scenarios],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as running,
    ):
        assert running.stdout is not None
        limit = Timer(_ROW_S, running.kill)
        limit.start()
        for line in running.stdout:
            cell = json.loads(line)
            left.remove(cell["scenario"])
            add(name, **cell)
        limit.cancel()
        ended = running.wait()
    if ended:
        # (Those after it have not begun.)
        add(name, left[0], "no end", f"exit {ended}; a row may take {_ROW_S} s")


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown, with a link for each code."""
    lines = [
        "| | " + " | ".join(SCENARIOS) + " | date |",
        "|---" * (len(SCENARIOS) + 2) + "|",
    ]
    for name, row in results.items():
        cells = [_linked(row["cells"].get(scenario, "")) for scenario in SCENARIOS]
        lines.append(f"| {name} | " + " | ".join([*cells, row["on"]]) + " |")
    return "\n".join(lines)


def _linked(said: str) -> str:
    words = [
        f"[{word[:6]}](../../docs/errors.md#{word[:6].lower()}){word[6:]}"
        if word.startswith("KP")
        else word
        for word in said.split(" ")
    ]
    return " ".join(words)


def write_page(results: Mapping[str, Mapping[str, Any]]) -> None:
    """The table between its markers."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.other_brokers")
    parser.add_argument("--broker", nargs="*", choices=tuple(BROKERS), default=tuple(BROKERS))
    parser.add_argument("--pyspark", nargs="*", default=(), help="of .venv-pyspark-VERSION")
    parser.add_argument("--scenario", nargs="*", choices=tuple(SCENARIOS), default=tuple(SCENARIOS))
    given = parser.parse_args()
    for name in given.broker:
        run_row(name, BROKERS[name](), sys.executable, given.scenario)
    for version in given.pyspark:
        name = f"PySpark {version}, Apache Kafka {KAFKA_VERSION}"
        python = str(ROOT / f".venv-pyspark-{version}" / "bin" / "python")
        wanted = [one for one in given.scenario if one in WITH_SPARK]
        run_row(name, apache(KAFKA_VERSION), python, wanted)
    write_page(read_results())


def read_results() -> dict[str, dict[str, Any]]:
    """By row; none before the first run."""
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text("utf-8"))
    return found


def add(name: str, scenario: str, said: str, why: str) -> None:
    """A cell replaces that of an earlier run; the table keeps its order."""
    print(f"{name}: {scenario}: {said} {why}", flush=True)
    results = read_results() if RESULTS.exists() else {}
    row = results.setdefault(name, {"cells": {}, "why": {}})
    row["on"] = datetime.now(UTC).date().isoformat()
    row["cells"][scenario] = said
    row["why"].pop(scenario, None)
    if why:
        row["why"][scenario] = why
    order = [*BROKERS, *sorted(results)]
    ordered = {one: results[one] for one in sorted(results, key=order.index)}
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
