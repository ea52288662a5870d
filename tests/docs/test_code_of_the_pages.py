"""Every Python block of README.md and docs/ is run: programs as they stand, a write by its options.

What other tests run is named in ``ELSEWHERE``, with the test.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.config.parsing import parse_sink_config
from tests.programs import run_python

ROOT = Path(__file__).resolve().parents[2]
#: Pages whose blocks other tests run.
ELSEWHERE = {
    "columns.md": "tests/datasource/test_columns_on_kafka.py",
    "migration.md": "tests/config/test_migration_docs.py",
    "python-producer.md": "tests/producer/test_python_producer_docs.py",
    "schedulers.md": "tests/docs/test_schedulers_page.py",
}
#: Pages whose blocks are one program, and the last lines that it prints.
PROGRAMS = {
    "quick-start.md": ["0 anna 3 apples", "1 ben 1 pear", "2 anna 2 plums"],
    "tutorial-exactly-once.md": ["1000", "2000"],
}
#: Spark's own, and a file of the reader's.
NOT_HERE = {"checkpointLocation", "configFile"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^( *)```(python|diff)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def blocks_of(text: str) -> Iterator[str]:
    """The Python of a page: its blocks, and each diff as it is after the change."""
    for indent, language, block in _BLOCK.findall(text):
        lines = [line.removeprefix(indent) for line in block.splitlines()]
        if language == "diff":
            lines = [line[1:] for line in lines if not line.startswith("-")]
        yield "\n".join(lines) + "\n"


BLOCKS = [
    (path.name, text)
    for path in PAGES
    for text in blocks_of(path.read_text("utf-8"))
    if path.name not in ELSEWHERE and path.name not in PROGRAMS
]


class Write:
    """A double of ``df``, ``stream`` and ``spark``: takes every call, and remembers the options."""

    def __init__(self) -> None:
        self.options_given: dict[str, str] = {}

    def option(self, name: str, value: object) -> Write:
        self.options_given[name] = str(value)
        return self

    def __getattr__(self, name: str) -> Write:
        return self

    def __call__(self, *_arguments: object, **_named: object) -> Write:
        return self


def whole(block: str) -> str:
    """A block that goes on from another one's write is one of its own."""
    return f'(df.write.format("kprod")\n{block}   .save())' if block.startswith("   .") else block


@pytest.mark.parametrize("page", ELSEWHERE)
def test_what_runs_a_page_exists_and_names_it(page):
    assert page in (ROOT / ELSEWHERE[page]).read_text("utf-8")


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_a_block_is_code_and_its_options_are_taken(page, block, tmp_path, monkeypatch):
    tree = ast.parse(whole(block))
    if "format(" not in whole(block):
        return  # classes and functions of a user's own, which stand for what he has
    monkeypatch.chdir(tmp_path)
    write = Write()
    names: dict[str, object] = dict.fromkeys(("df", "rows", "stream", "spark", "register"), write)
    names |= {"servers": "b:1", "reports": "/r/", "path": "/cp", "topic": "t", "day": "2026-11-22"}
    for statement in tree.body:
        source = ast.unparse(statement)
        if isinstance(statement, ast.Expr) and ".option(" in source:
            exec(compile(source, page, "exec"), names)
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", **write.options_given}
    given = {name: value for name, value in given.items() if name not in NOT_HERE}
    if "kafka.sasl.mechanism" not in given and any("sasl" in name for name in given):
        given |= {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
    if any("kafka.ssl" in name for name in given):
        given.setdefault("kafka.security.protocol", "SSL")  # the block above it on the page has it
    parse_sink_config(given)


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("page", PROGRAMS)
def test_a_program_of_a_page_prints_what_the_page_says(page, tmp_path):
    """In a folder and a process of its own, as its reader runs it."""
    text = next(path for path in PAGES if path.name == page).read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    program = tmp_path / "try.py"
    program.write_text("\n".join(blocks), encoding="utf-8")
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    done = run_python(program, cwd=tmp_path, environment=environment, timeout=400)
    assert done.stdout.splitlines()[-len(PROGRAMS[page]) :] == PROGRAMS[page]
    assert all(line in text for line in PROGRAMS[page])


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_the_tests_of_the_testing_page_pass(tmp_path):
    """The page's job, fixtures and tests, as files of a reader's project."""
    text = (ROOT / "docs" / "testing.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for name, block in zip(
        ("orders_job.py", "conftest.py", "test_orders.py"), blocks, strict=False
    ):
        assert f"`{name}`:\n\n```python\n{block}" in text
        (tmp_path / name).write_text(block, encoding="utf-8")
    environment = {
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    pytest_run = ("-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    done = run_python(*pytest_run, cwd=tmp_path, environment=environment, timeout=400)
    assert "4 passed" in done.stdout
