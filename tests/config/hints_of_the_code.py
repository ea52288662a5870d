"""Every hint in the package's code, found in its syntax tree: the text, and where it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import spark_kafka_sink
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS

ROOT = Path(spark_kafka_sink.__file__).parent
#: A value that the code fills in: of an f-string, or of a Check's text.
FILLED = "{}"
_FILLED = re.compile(r"\{[^{}]*\}")
#: A Check's name of an option as it was given.
_NAMED = re.compile(r"<[a-z.]+>")
#: The letters that a hint has of its own; a text without them passes another hint on.
_OWN = re.compile(r"[A-Za-z]{2,}")
#: In the name of a variable that holds hints, or of a function that returns them.
_NAMES_HINTS = re.compile("hint|advice|^change$", re.IGNORECASE)
#: Names of an argument that is a hint; ``change`` is the advice of a step of ``kprod check``.
_ARGUMENTS = ("hint", "change")
_CAST_CALL_OR_COMMAND = re.compile(r"\bcast\b|\w\(|\bkprod [a-z]|--[a-z]")
Constants = Mapping[str, ast.expr]


@dataclass(frozen=True, slots=True)
class Hint:
    """``text`` has a ``{}`` for each value that is filled in; ``file`` is below the package."""

    file: str
    text: str

    @property
    def names_something(self) -> bool:
        """Whether the hint names an option, a cast, a function or a command."""
        words = set(re.findall(r"[\w.]+\w", self.text))
        named = FILLED in self.text or not words.isdisjoint(_option_names())
        return named or _CAST_CALL_OR_COMMAND.search(self.text) is not None

    def is_in(self, raised: str) -> bool:
        """Whether ``raised``, the hint of an error, comes from this text."""
        parts = map(re.escape, spelled_alike(self.text).split(FILLED))
        return re.fullmatch(".*".join(parts), spelled_alike(raised), re.DOTALL) is not None


def spelled_alike(text: str) -> str:
    """Without the prefix that options have in a write and not in a producer."""
    return text.replace("kafka.", "")


@cache
def _option_names() -> frozenset[str]:
    """Of at least two words: "topic" and "retries" are words of sentences, too."""
    own = set(SINK_OPTIONS) | {
        f"{prefix}{name}" for name in PRODUCER_OPTIONS for prefix in ("", "kafka.")
    }
    return frozenset(name for name in own if not name.islower() or "." in name)


@cache
def hints() -> tuple[Hint, ...]:
    """Each once, in the order of the files."""
    texts = {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    places = {
        name: at
        for text in texts.values()
        if re.search(r"\b(hint|change)\b", text)
        for name, at in _places(ast.parse(text))
    }
    of_hints = re.compile(rf"hint|advice|\bchange\b|\b({'|'.join(places)})\(", re.IGNORECASE)
    trees = {path: ast.parse(text) for path, text in texts.items() if of_hints.search(text)}
    return tuple(
        dict.fromkeys(
            Hint(str(path.relative_to(ROOT)), text)
            for path, tree in trees.items()
            for constants in [_constants(tree)]
            for expression in _expressions(tree, places)
            for text in _texts(expression, constants)
            if _OWN.search(text)
        )
    )


def _places(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Functions and classes that take a hint, each with the position of that argument."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
            names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        elif isinstance(node, ast.ClassDef):
            fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            names = [one.id for one in fields if isinstance(one, ast.Name)]
        taken = [names.index(one) for one in _ARGUMENTS if one in names]
        if taken and not getattr(node, "name", "").startswith("__"):
            yield node.name, taken[0]  # type: ignore[attr-defined]  # both have one


def _expressions(tree: ast.AST, places: Mapping[str, int]) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg in _ARGUMENTS:
            yield node.value
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            yield from node.args[places[name] :][:1] if name in places else ()
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield from _assigned(target, node.value)
        elif isinstance(node, ast.FunctionDef) and _NAMES_HINTS.search(node.name):
            returns = (one for one in ast.walk(node) if isinstance(one, ast.Return))
            yield from (one.value for one in returns if one.value is not None)


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[ast.expr]:
    """The value of a variable with a hint in its name, also as one of several."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its in zip(target.elts, value.elts, strict=False):  # a starred one is no hint
            yield from _assigned(one, its)
    elif _NAMES_HINTS.search(_name(target)):
        yield value


def _name(node: ast.expr) -> str:
    """The last name of a variable, or of an attribute; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _constants(tree: ast.Module) -> Constants:
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found[_name(target)] = node.value
    return found


def _texts(node: ast.expr, constants: Constants) -> list[str]:
    """The texts that the expression may be, one for each branch of it."""
    if isinstance(node, ast.Constant):
        given = node.value if isinstance(node.value, str) else ""
        return [_FILLED.sub(FILLED, _NAMED.sub(FILLED, given))] if given else []
    if isinstance(node, ast.JoinedStr):
        parts = [str(one.value) if isinstance(one, ast.Constant) else FILLED for one in node.values]
        return ["".join(parts)]
    if isinstance(node, ast.Name) and node.id in constants:
        return _texts(constants[node.id], {})
    if isinstance(node, ast.BinOp):
        left, right = (_texts(one, constants) or [FILLED] for one in (node.left, node.right))
        return [a + b for a in left for b in right]
    inner: list[ast.expr] = []
    if isinstance(node, ast.IfExp):
        inner = [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp):
        inner = node.values
    elif isinstance(node, ast.Call):
        inner = node.args
    elif isinstance(node, ast.Tuple):
        inner = node.elts
    elif isinstance(node, ast.Dict):
        inner = node.values
    return [text for one in inner for text in _texts(one, constants)]
