"""Mutation testing: changes one thing in a file, runs the tests that should notice, and counts.

    python tools/mutate.py                      all targets, every mutant
    python tools/mutate.py sender --sample 50   one target, fifty of its mutants, chosen by --seed

A mutant is one comparison, boolean, number, sign or statement changed. Killed: a test failed or
timed out. Survivors are printed with their line; those that are read and explained stand in
tests/mutation.md. Works in a copy of the checkout; nothing in it is changed.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCER = "spark_kafka_sink/producer"
BATCHES = (
    "producer/test_record_accumulator.py",
    "producer/test_batch_*.py",
    "producer/test_record_appender.py",
)
SIMULATED = "simulation/test_simulation.py"
SENDER = ("producer/test_sender*.py", "producer/test_kafka_producer_send_errors.py", SIMULATED)
TRANSACTIONS = ("producer/test_transaction_*.py", "producer/test_txn_request*.py")
#: What is changed, and the files of tests/ that must notice, the likeliest first.
TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "producer_batch": (
        f"{PRODUCER}/accumulator/producer_batch.py",
        ("producer/test_producer_batch.py", *BATCHES, *SENDER),
    ),
    "record_accumulator": (
        f"{PRODUCER}/accumulator/record_accumulator.py",
        (*BATCHES, "producer/test_partition_load.py", *SENDER),
    ),
    "batch_drainer": (
        f"{PRODUCER}/accumulator/batch_drainer.py",
        (*BATCHES, *SENDER),
    ),
    "partition_load": (
        f"{PRODUCER}/accumulator/partition_load.py",
        ("producer/test_partition_load.py",),
    ),
    "batch_returns": (
        f"{PRODUCER}/accumulator/batch_returns.py",
        (*BATCHES, "producer/test_producer_batch.py", *SENDER),
    ),
    "batch_filler": (f"{PRODUCER}/accumulator/batch_filler.py", (*BATCHES, *SENDER)),
    "sender": (f"{PRODUCER}/sender/sender.py", SENDER),
    "in_flight_batches": (f"{PRODUCER}/sender/in_flight_batches.py", SENDER),
    "partition_sequences": (
        f"{PRODUCER}/transaction/partition_sequences.py",
        ("producer/test_partition_sequences*.py", *SENDER),
    ),
    "transaction_manager": (
        f"{PRODUCER}/transaction/transaction_manager.py",
        (*TRANSACTIONS, *SENDER),
    ),
    "txn_request_queue": (
        f"{PRODUCER}/transaction/txn_request_queue.py",
        (*TRANSACTIONS, *SENDER),
    ),
}

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """``source`` is the whole file with one thing changed; ``text`` says which."""

    line: int
    text: str
    source: str


def mutants(source: str) -> list[tuple[int, int]]:
    """What can be changed in a file: (number of the node, which of its two changes)."""
    return [
        (number, change)
        for number, node in enumerate(_nodes(ast.parse(source)))
        for change in range(2)
        if _has_change(node, change)
    ]


def mutant(source: str, number: int, change: int) -> Mutant:
    """One of :func:`mutants`, made; many more are counted than are run."""
    tree = ast.parse(source)
    node = _nodes(tree)[number]
    line = getattr(node, "lineno", 0)
    text = _change(tree, node, change)
    return Mutant(line, text, ast.unparse(ast.fix_missing_locations(tree)))


def _nodes(tree: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(tree) if hasattr(node, "lineno")]


def _has_change(node: ast.AST, change: int) -> bool:
    if change == 1:
        return isinstance(node, ast.If | ast.IfExp | ast.While) or _can_go(node)
    return (
        (isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS)
        or isinstance(node, ast.BoolOp)
        or (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub))
        or (isinstance(node, ast.Constant) and isinstance(node.value, bool | int))
        or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not))
    )


def _change(tree: ast.AST, node: ast.AST, change: int) -> str:
    """Change ``node`` in its tree; what was done."""
    if change == 1 and isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return f"not -> {ast.unparse(node.test)}"
    if isinstance(node, ast.Compare):
        node.ops[0] = _COMPARISONS[type(node.ops[0])]()
        return f"comparison -> {ast.unparse(node)}"
    if isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return f"and/or -> {ast.unparse(node)}"
    if isinstance(node, ast.BinOp):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return f"sign -> {ast.unparse(node)}"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
        return f"constant -> {node.value}"
    if isinstance(node, ast.UnaryOp):
        _replace(tree, node, node.operand)
        return f"no not -> {ast.unparse(node.operand)}"
    text = ast.unparse(node)
    _replace(tree, node, ast.Pass())
    return f"gone: {text}"


def _can_go(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return not isinstance(node.value, ast.Constant)  # a docstring does nothing
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign | ast.Continue | ast.Break | ast.Delete)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
                return
            if isinstance(value, list) and any(item is old for item in value):
                value[[item is old for item in value].index(True)] = new
                return


class Copy:
    """A copy of the checkout, in which one mutant after the other lives."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ignore = shutil.ignore_patterns("__pycache__")
        for name in ("spark_kafka_sink", "tests"):
            shutil.copytree(ROOT / name, directory / name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", directory)

    def _named(self, pattern: str) -> list[str]:
        found = sorted(map(str, (self._directory / "tests").glob(pattern)))
        if not found:  # pytest would fail for it, and every mutant count as killed
            raise FileNotFoundError(pattern)
        return found

    def survives(self, path: str, source: str, tests: tuple[str, ...], seconds: float) -> bool:
        original = (ROOT / path).read_text()
        (self._directory / path).write_text(source)
        try:
            options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not broker"]
            command = [sys.executable, "-m", "pytest", *options]
            command += [file for pattern in tests for file in self._named(pattern)]
            done = subprocess.run(
                command,
                cwd=self._directory,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "HYPOTHESIS_PROFILE": "mutation"},
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
        finally:
            (self._directory / path).write_text(original)
        return done.returncode == 0


def run(target: str, sample: int | None, seed: int, jobs: int, seconds: float) -> list[Mutant]:
    """The survivors of a target, printed as they are found."""
    path, tests = TARGETS[target]
    source = (ROOT / path).read_text()
    numbers = mutants(source)
    if sample is not None and sample < len(numbers):
        numbers = random.Random(seed).sample(numbers, sample)
    found = sorted((mutant(source, *which) for which in numbers), key=lambda m: m.line)
    survivors: list[Mutant] = []
    with tempfile.TemporaryDirectory() as directory:
        copies = [Copy(Path(directory) / str(number)) for number in range(jobs)]
        if not copies[0].survives(path, (ROOT / path).read_text(), tests, seconds):
            raise SystemExit(f"{target}: the tests fail without a mutant")

        def one(job: int) -> None:
            for mutant in found[job::jobs]:
                if copies[job].survives(path, mutant.source, tests, seconds):
                    survivors.append(mutant)
                    print(f"{path}:{mutant.line}: {mutant.text}", flush=True)

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, range(jobs)))
    print(f"{target}: {len(found)} mutants, {len(survivors)} survived", flush=True)
    return survivors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="target")
    parser.add_argument("--sample", type=int, help="so many mutants of each target (default: all)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="time for one mutant's tests")
    args = parser.parse_args()
    for target in args.targets:
        run(target, args.sample, args.seed, args.jobs, args.seconds)


if __name__ == "__main__":
    main()
