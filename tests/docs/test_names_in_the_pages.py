"""What pages, templates and conf/ name exists: commands, codes, targets of make, modules, files."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
import typer

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
#: Not the history: it says what was.
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for place in ("*.md", "docs/**/*.md", "conf/**/*", "templates/**/*", ".github/**/*",
                  "docker-compose.yml", "notebooks/**/*")
    for path in ROOT.glob(place)
    if path.is_file()
    and path.suffix in {".md", ".yml", ".yaml", ".py", ".tmpl", ".ipynb", ".properties", ".json"}
    and "build" not in path.parts
}  # fmt: skip
CODES = {*Kind, *(code.kp_code for code in ErrorCode)}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def commands(command, name=""):
    """The names of all commands of kprod, ``txn list`` for one of a group."""
    yield name.strip()
    for key, child in getattr(command, "commands", {}).items():
        yield from commands(child, f"{name} {key}")


COMMANDS = set(commands(typer.main.get_command(app)))
GROUPS = {name.partition(" ")[0] for name in COMMANDS if " " in name}


#: What follows ``kprod`` in lines of the log and in messages.
LOGGED = {"wrote", "writes", "does", "needs"}


def named_commands(text):
    """What follows ``kprod`` where it is typed."""
    for first, second in re.findall(r"[`$'\"] ?kprod ([a-z]+)(?:[ \n]([a-z]+))?", text):
        yield f"{first} {second}" if first in GROUPS and second else first


def test_the_commands_are_those_of_the_program():
    assert {"check", "explain", "txn", "txn list"} <= COMMANDS


@pytest.mark.parametrize("page", PAGES)
def test_a_command_that_is_named_exists(page):
    assert set(named_commands(PAGES[page])) - COMMANDS - LOGGED == set()


@pytest.mark.parametrize(
    "page", sorted(set(PAGES) - {"docs/design/extending.md"})
)  # makes new ones
def test_a_code_that_is_named_exists(page):
    assert set(re.findall(r"\bKP\d{4}\b", PAGES[page])) - CODES == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_target_of_make_that_is_named_exists(page):
    named = re.findall(
        r"(?:^ *|`|run: )make ([a-z]+(?:-[a-z]+)*)(?=[`\s])", PAGES[page], re.MULTILINE
    )
    assert set(named) - TARGETS == set()


@pytest.mark.parametrize("page", PAGES)
def test_a_module_that_is_run_exists(page):
    for name in re.findall(
        r"python -m\s+((?:spark_kafka_sink|bench|tests|tools)[\w.]*)", PAGES[page]
    ):
        found = importlib.util.find_spec(name.rstrip("."))
        assert found is not None, name
        assert found.submodule_search_locations is None or importlib.util.find_spec(
            f"{name}.__main__"
        ), name


@pytest.mark.parametrize("page", PAGES)
def test_a_file_that_is_named_exists(page):
    for name in re.findall(r"`((?:conf|templates|docs|tests|tools|bench|notebooks)/[^`\s*<>]+)`",
                           PAGES[page]):  # fmt: skip
        assert (ROOT / name).exists(), name
