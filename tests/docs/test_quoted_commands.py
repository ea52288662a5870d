"""Every ``kprod`` command line that pages, errors and templates quote is one that it takes."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from functools import cache
from typing import Any

import pytest
import typer

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.explanation import entries
from tests.docs.test_names_in_the_pages import LOGGED, PAGES, ROOT

sys.path.insert(0, str(ROOT / "tools"))
import error_docs

sys.path.remove(str(ROOT / "tools"))

#: Typer has Click inside, and exports one of its errors.
UsageError: Any = typer.BadParameter.__base__
#: Command lines that a reader copies: after a prompt, or indented.
_PROMPT = re.compile(r"^(?:\$ | {4})(kprod .*)$", re.MULTILINE)
#: Command lines in a sentence, which may leave out what every command takes.
_INLINE = re.compile(r"`(kprod [^`\n]+)`")
_IN_MESSAGES = re.compile(r"'(kprod [^'\n]+)'")


#: Lines of the log, and commands whose name a message fills in.
FILLED = re.compile(rf"kprod ({'|'.join(LOGGED)}|txn 1)\b")


@cache
def texts_of_errors() -> dict[str, str]:
    """The site's page of each error, and each text that an error's advice has."""
    pages = {f"{code}.md": text for code, text in error_docs.pages()}
    return pages | {str(kind): entry.advice for kind, entry in entries().items()}


@cache
def messages() -> dict[str, str]:
    """Every string of the package, by its place, with 1 for each value that it is filled with."""
    found = {}
    for path in sorted((ROOT / "spark_kafka_sink").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else "1" for p in node.values]
                found[f"{path.name}:{node.lineno}"] = "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.setdefault(f"{path.name}:{node.lineno}", node.value)
    return found


@cache
def copied() -> dict[str, list[str]]:
    """Each command line that a reader copies, and the places where it stands."""
    found: dict[str, list[str]] = {}
    for place, text in (PAGES | texts_of_errors()).items():
        for line in _PROMPT.findall(text):
            if FILLED.match(line):
                continue
            found.setdefault(line, []).append(place)
    return found


@cache
def mentioned() -> dict[str, list[str]]:
    """Each command line of a sentence, and the places where it stands."""
    pages = PAGES | texts_of_errors()
    lines = [(place, line) for place, text in pages.items() for line in _INLINE.findall(text)]
    lines += [(place, x) for place, text in messages().items() for x in _IN_MESSAGES.findall(text)]
    found: dict[str, list[str]] = {}
    for place, line in lines:
        if not FILLED.match(line):
            found.setdefault(line, []).append(place)
    return found


@cache
def program() -> Any:
    return typer.main.get_command(app)


def parse_words(line: str) -> tuple[Any, list[str]]:
    """The command that `line` calls, and the words after the command's name. Raises UsageError."""
    words = [word for word in shlex.split(line.partition(" > ")[0])[1:] if word != "..."]
    words = ["1" if word == "N" else word for word in words]  # the number of a batch, in a sentence
    command = program()
    while words and not words[0].startswith("-"):
        inner = getattr(command, "commands", None)
        if inner is None:
            break
        name = words.pop(0)
        if name not in inner:
            raise UsageError(f"no such command: {name}")
        command = inner[name]
    return command, words


def parse(line: str) -> tuple[Any, list[str]]:
    """The command and its words as in :func:`parse_words`, taken by the command's own parser.

    Raises UsageError, as the program would.
    """
    command, words = parse_words(line)
    if words and words[0] != "--install-completion":
        command.make_context(command.name, list(words))
    return command, words


def problem_of(line: str) -> str | None:
    """Why `line` would fail; None when the program takes it."""
    try:
        parse(line)
    except UsageError as error:
        return type(error).__name__ + ": " + error.format_message()
    return None


def test_there_are_lines_to_look_at():
    assert len(copied()) > 20
    assert len(mentioned()) > 60


def test_a_line_that_is_copied_is_one_that_runs():
    """115 of 168 error pages offered ``kprod check orders``, which is a usage error."""
    problems = {line: (problem_of(line), places[:3]) for line, places in copied().items()}
    assert {line: found for line, found in problems.items() if found[0]} == {}
    for line, places in copied().items():
        command, words = parse(line)
        takes = {name for one in command.params for name in one.opts}
        if "-b" in takes and "PATH" not in {one.metavar for one in command.params}:
            assert {"-b", "-c", "--bootstrap-servers", "--config"} & {*words}, (line, places)
        assert words or not hasattr(command, "commands"), (line, places)


def test_a_line_that_is_mentioned_has_words_that_exist():
    """A sentence may leave out an argument that the reader knows."""
    problems = {line: (problem_of(line), places[:3]) for line, places in mentioned().items()}
    wrong = {line: found for line, found in problems.items() if found[0]}
    assert {
        line: found for line, found in wrong.items() if "MissingParameter" not in str(found[0])
    } == {}


def test_an_argument_has_the_name_that_the_help_shows():
    """KP0600 had PREFIX where the help of the command has KEY."""
    for line, places in mentioned().items():
        command, words = parse_words(line)
        names = {one.metavar for one in command.params if one.param_type_name == "argument"}
        given = [word for word in words if re.fullmatch(r"[A-Z]{3,}", word)]
        if names and given and not words[0].startswith("-"):
            assert given[0] in names | {"CODE"}, (line, places)


@pytest.mark.parametrize(
    "line", ["kprod check orders -b b:1", "kprod cheque", "kprod check --topics orders"]
)
def test_a_line_that_would_fail_is_found(line):
    with pytest.raises(UsageError):
        parse(line)
