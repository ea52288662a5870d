"""A Spark application that changes a Delta table at random:

    python -m tests.changelogs.table_job '{"folder": ..., "jars": ..., "seed": 1, "keys": 60,
        "changes": 12, "ahead": 20, "tidied": 25, "seconds": 600}'

It ends when ``changes`` statements have changed the table, and begins none after ``seconds``. It
waits while the stream of ``stream_job`` is more than ``ahead`` commits late, and joins small files
after each ``tidied`` statements. At the end it writes the rows to ``rows.json``, and prints a line
of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.changelogs.applications import cpu_seconds
from tests.changelogs.checkpoint import written_versions
from tests.changelogs.delta_table import DeltaTable, session
from tests.waiting import wait_for

#: A stream that is restarted on a busy machine catches up within this time.
_LATE_S = 1_800.0
#: Statements that run for minutes are cheaper after Java's second compiler.
_LONG_JVM = ("-XX:+UseSerialGC",)
ROWS = "rows.json"


def main(given: dict[str, Any]) -> None:
    folder = Path(given["folder"])
    spark = session(folder / "table-job", given["jars"], cores=1, jvm=_LONG_JVM)
    table = DeltaTable(spark, folder / "table", given["keys"])
    table.create(Random(given["seed"]))
    begun = cpu_seconds(os.getpid())
    done = Counter[str]()
    for kind in _changes(table, given, folder / "checkpoint"):
        done[kind] += 1
        spent = cpu_seconds(os.getpid()) - begun
        print(json.dumps({"done": done.total(), "spent": round(spent, 1)}), flush=True)
    unfinished = folder / f"{ROWS}.part"
    unfinished.write_text(json.dumps(table.rows()))
    unfinished.rename(folder / ROWS)
    print(json.dumps({"statements": done}), flush=True)


def _changes(table: DeltaTable, given: dict[str, Any], checkpoint: Path) -> Iterator[str]:
    """The kinds of the statements that changed the table. A statement that finds no row does
    not.
    """
    deadline = time.monotonic() + given["seconds"]
    begun, done, version = 0, 0, table.version()
    while done < given["changes"] and time.monotonic() < deadline:
        wait_for(
            lambda: table.version() - written_versions(checkpoint) <= given["ahead"],
            _LATE_S,
            "a stream that keeps up with the table",
            pause=0.05,
        )
        kind = table.change(Random(f"{given['seed']} {begun}"))
        begun += 1
        if table.version() > version:
            done += 1
            if done % given["tidied"] == 0:
                table.tidy()
            yield kind
        version = table.version()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
