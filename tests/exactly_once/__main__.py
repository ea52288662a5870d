"""``make faults``: every scenario several times, on one node and on three, with a page of results.

    python -m tests.exactly_once --rounds 5 --nodes 1,3 --kills 20

One pytest run for each number of nodes. The page is ``RESULTS.md`` beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", default="1,3")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", default="", help="a pytest -k expression")
    parser.add_argument("--page", type=Path, default=HERE / "RESULTS.md")
    arguments = parser.parse_args()
    begun = time.time()
    failed = False
    with tempfile.TemporaryDirectory() as home:
        gathered = Path(home, "results.jsonl")
        for nodes in arguments.nodes.split(","):
            environment = {
                **os.environ,
                "KPROD_FAULT_ROUNDS": str(arguments.rounds),
                "KPROD_FAULT_NODES": nodes,
                "KPROD_FAULT_KILLS": str(arguments.kills),
                "KPROD_FAULT_TASKS": "200",
                "KPROD_FAULT_RESULTS": str(gathered),
                "KPROD_FAULT_TITLE": nodes,
            }
            command = [sys.executable, "-m", "pytest", str(HERE), "--timeout=3600"]
            if arguments.only:
                command += ["-k", arguments.only]
            failed |= subprocess.run(command, env=environment, check=False).returncode != 0
        lines = gathered.read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    page = render(entries, arguments, time.time() - begun)
    arguments.page.write_text(page, encoding="utf-8")
    return int(failed)


def render(entries: list[dict[str, object]], arguments: argparse.Namespace, took: float) -> str:
    """One row for each test; the rounds of a test are counted together."""
    tests: dict[str, dict[str, list[dict[str, object]]]] = defaultdict(lambda: defaultdict(list))
    for entry in entries:
        tests[without_round(str(entry["test"]))][str(entry["run"])].append(entry)
    columns = arguments.nodes.split(",")
    head = " | ".join(f"{n} node{'s' if n != '1' else ''}" for n in columns)
    called = f"ROUNDS={arguments.rounds} NODES={arguments.nodes} KILLS={arguments.kills}"
    lines = [
        "# Exactly-once under faults",
        "",
        "`make faults` writes this page. The test of a scenario describes the scenario. A cell has",
        "the number of clean runs, the number of all runs, and the mean time of a run. Every run",
        "shows that its fault fired. `checker.py` judges a run by the rows that independent",
        "readers see.",
        "",
        f"`make faults {called}` took {took / 60:.0f} minutes.",
        "",
        f"| scenario | {head} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for name, runs in tests.items():
        cells = []
        for column in columns:
            of = runs.get(column, [])
            clean = sum(bool(entry["passed"]) for entry in of)
            mean = sum(float(str(entry["seconds"])) for entry in of) / len(of) if of else 0.0
            cells.append(f"{clean}/{len(of)}, {mean:.1f} s" if of else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "## Killed drivers", ""]
    for name, runs in tests.items():
        if "repeatedly killed" not in name:
            continue
        for column, of in runs.items():
            for entry in of:
                notes = entry["notes"]
                assert isinstance(notes, list)
                told = "; ".join(str(note).replace("\n", " ") for note in notes)
                lines.append(
                    f"- {column} node(s), {'clean' if entry['passed'] else 'NOT CLEAN'}: {told}"
                )
    return "\n".join(lines) + "\n"


def without_round(name: str) -> str:
    """``test_x[r2]`` and ``test_x[r2-a]`` are rounds of ``test_x`` and ``test_x[a]``."""
    words = re.sub(r"\[r\d+\]$", "", name)
    words = re.sub(r"\[r\d+-", "[", words)
    return words.removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    sys.exit(main())
