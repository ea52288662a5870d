"""``make compat``: the scenarios on each broker, and on Kafka with each PySpark.

    python -m tests.other_brokers [--broker NAME ...] [--pyspark VERSION ...] [--scenario NAME ...]

Cells that ran replace theirs in ``results.json``. The table of RESULTS.md, and the short table of
docs/compatibility.md, are made of it.
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
from tests.other_brokers.scenarios import OK, SCENARIOS, WITH_SPARK

ROOT: Final = Path(__file__).parents[2]
RESULTS: Final = Path(__file__).with_name("results.json")
PAGE: Final = Path(__file__).with_name("RESULTS.md")
#: The users' page, with a line for each broker.
SHORT_PAGE: Final = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- make compat writes from here -->", "<!-- to here -->"
#: What works for users if a scenario succeeds, and what does not work if it fails.
_WORKS: Final = {
    "plain write": "at-least-once",
    "dead letters": "dead letters",
    "stream": "exactly-once",
}
_FAILS: Final = _WORKS | {
    "killed driver": "the next start after a driver was killed",
    "after the timeout": "if the driver was dead for longer than `kafka.transaction.timeout.ms`, "
    "the next start fails",
}
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


def short_table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown with a line for each broker. Versions of Apache Kafka with the same result share a
    line. The variants of kfake are left out: another table of the page has the APIs that they lack.
    """
    names: dict[tuple[str, str], str] = {}
    for name, row in results.items():
        if name.startswith(("kfake ", "kfake,", "PySpark ")):
            continue
        version = name.removeprefix("Apache Kafka ")
        line = "" if version != name else name, f"{_result(row['cells'])} | {row['on']}"
        names[line] = f"{names[line]}, {version}" if line in names else name
    rows = [f"| {name} | {result} |" for (_, result), name in names.items()]
    return "\n".join(["| broker | works | does not work | date |", "|---|---|---|---|", *rows])


def _result(cells: Mapping[str, str]) -> str:
    """What works, and what does not work, as two cells."""
    works = [text for scenario, text in _WORKS.items() if cells.get(scenario) == OK]
    fails = []
    for scenario, text in _FAILS.items():
        said = cells.get(scenario, OK)
        if said != OK:
            why = said.replace(
                " (it never times out)",
                ". Even after this time, the broker does not abort the driver's transactions",
            )
            fails.append(f"{text}: {_linked(why, 'errors.md')}")
            if scenario == "stream":
                break  # the scenarios after it need exactly-once
    return f"{', '.join(works)} | {'; '.join(fails) or 'nothing failed'}"


def _linked(said: str, errors: str = "../../docs/errors.md") -> str:
    words = [
        f"[{word[:6]}]({errors}#{word[:6].lower()}){word[6:]}" if word.startswith("KP") else word
        for word in said.split(" ")
    ]
    return " ".join(words)


def write_page(results: Mapping[str, Mapping[str, Any]]) -> None:
    """The tables of both pages, between their markers."""
    for page, text in ((PAGE, table(results)), (SHORT_PAGE, short_table(results))):
        before, _, rest = page.read_text("utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", "utf-8")


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
