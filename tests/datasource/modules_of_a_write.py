"""Measures which modules of the package a write imports, and reads the reasons for each room.

A *room* is a folder of the package. The reasons are in ``modules_of_a_write.toml``, which
``docs/design/modules-of-a-write.md`` shows. A write has three Python processes: Spark plans a batch
in the first process, a task writes in the second, and the commit runs in the third.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.programs import run_python

LIST = Path(__file__).with_suffix(".toml")
PACKAGE = "spark_kafka_sink"
PROCESSES = ("plan", "task", "commit")

_PLAN = """
import base64, json, pickle, sys
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructField, StructType
from spark_kafka_sink.datasource.source import KprodDataSource
given = json.load(sys.stdin)
schema = StructType([StructField("value", BinaryType())])
writer = KprodDataSource(CaseInsensitiveDict(given)).writer(schema, overwrite=False)
answer = base64.b64encode(pickle.dumps(writer)).decode()
"""
_TASK = """
import base64, json, pickle, sys
import pyarrow as pa
from pyspark import TaskContext
context = TaskContext._getOrCreate()
context._partitionId = context._attemptNumber = context._taskAttemptId = context._stageId = 0
context._localProperties = {}
given = json.load(sys.stdin)
writer = pickle.loads(base64.b64decode(given["writer"]))
rows = pa.record_batch({"value": pa.array([b"one"], pa.binary())})
answer = base64.b64encode(pickle.dumps(writer.write(iter([rows])))).decode()
"""
_COMMIT = """
import base64, json, pickle, sys
given = json.load(sys.stdin)
writer = pickle.loads(base64.b64decode(given["writer"]))
writer.commit([pickle.loads(base64.b64decode(given["message"]))])
answer = ""
"""
_PRINT = """
print(answer)
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "spark_kafka_sink"))
"""


def measured(options: dict[str, str]) -> dict[str, dict[str, list[str]]]:
    """The modules of each process, by room, when one row is written with ``options``."""
    writer, plan = _process(_PLAN, options)
    message, task = _process(_TASK, {"writer": writer})
    _, commit = _process(_COMMIT, {"writer": writer, "message": message})
    return {
        process: _by_room(modules)
        for process, modules in zip(PROCESSES, (plan, task, commit), strict=True)
    }


def _process(program: str, given: dict[str, str]) -> tuple[str, list[str]]:
    out = run_python("-c", program + _PRINT, stdin=json.dumps(given)).stdout.splitlines()
    return out[-2], out[-1].split()


def _by_room(modules: list[str]) -> dict[str, list[str]]:
    rooms: dict[str, list[str]] = defaultdict(list)
    root = Path(__file__).parents[2]
    for module in modules:
        if (root / module.replace(".", "/")).is_dir():
            continue  # the docstring of a room
        room, _, name = module.rpartition(".")
        rooms[room.removeprefix(f"{PACKAGE}.")].append(name)
    return dict(rooms)


def listed() -> dict[str, dict[str, object]]:
    """The rooms of the list: ``reason``, and by guarantee and process the modules."""
    return tomllib.loads(LIST.read_text(encoding="utf-8"))


def modules_of(guarantee: str, process: str) -> dict[str, list[str]]:
    """The listed modules of one process, by room."""
    found = {}
    for room, entry in listed().items():
        modules = entry.get(f"{guarantee}-{process}")
        if isinstance(modules, list):
            found[room] = modules
    return found


def write(guarantee: str, found: dict[str, dict[str, list[str]]]) -> None:
    """Replaces the modules of ``guarantee`` in the list; a new room has an empty reason."""
    rooms = listed()
    for process in PROCESSES:
        for room in {*rooms, *found[process]}:
            entry = rooms.setdefault(room, {"reason": ""})
            entry.pop(f"{guarantee}-{process}", None)
            if room in found[process]:
                entry[f"{guarantee}-{process}"] = found[process][room]
    text = "".join(_lines(rooms))
    LIST.write_text(text, encoding="utf-8")


def _lines(rooms: dict[str, dict[str, object]]) -> Iterator[str]:
    yield "# The modules that a write of one row imports, by room: written by\n"
    yield "# KPROD_WRITE_MODULES=1 python -m pytest tests/datasource/test_modules_of_a_write.py\n"
    yield "# Each room has its reason, by hand.\n"
    for room, entry in sorted(rooms.items()):
        if len(entry) > 1:
            yield f'\n["{room}"]\nreason = {json.dumps(entry["reason"])}\n'
            for name in sorted(entry.keys() - {"reason"}):
                yield f"{name} = {json.dumps(entry[name])}\n"
