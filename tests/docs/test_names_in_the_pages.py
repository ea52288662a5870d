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
def test_what_a_page_names_exists(page):
    """But codes in the page that makes new ones."""
    text = PAGES[page]
    assert set(named_commands(text)) - COMMANDS - LOGGED == set()
    codes = set(re.findall(r"\bKP\d{4}\b", text))
    assert page == "docs/design/extending.md" or codes - CODES == set()
    targets = re.findall(r"(?:^ *|`|run: )make ([a-z]+(?:-[a-z]+)*)(?=[`\s])", text, re.MULTILINE)
    assert set(targets) - TARGETS == set()
    folders = "conf|templates|docs|tests|tools|bench|notebooks"
    for name in re.findall(rf"`((?:{folders})/[^`\s*<>]+)`", text):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"python -m\s+((?:spark_kafka_sink|bench|tests|tools)[\w.]*)", text):
        found = importlib.util.find_spec(name.rstrip("."))
        assert found is not None, name
        assert found.submodule_search_locations is None or importlib.util.find_spec(
            f"{name}.__main__"
        ), name


def test_one_page_installs_what_no_index_has():
    """17 lines of 13 pages had `pip install spark-kafka-sink`, which no package index has."""
    lines = {
        (page, line.strip())
        for page, text in PAGES.items()
        for line in text.splitlines()
        if re.search(r"pip install [^`]*spark-kafka-sink\b", line)
    }
    assert {page for page, _ in lines} <= {"docs/install.md", "docs/licences.md"}, lines
