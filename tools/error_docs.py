"""docs/errors.md, and a page of the site for each code, out of the tables of errors.

Owns: their text. Never: what an error means (``error_kinds.py``, ``errors.py``). The pages are made
with the site, and are not in the repository.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tables import heading, paragraph, row

from spark_kafka_sink.base import documentation, error_kinds, errors

ROOT = Path(__file__).resolve().parent.parent


def page_lines() -> Iterator[str]:
    """docs/errors.md, below its title: all of them."""
    yield paragraph(
        "Every error is one line that says what went wrong, where, and what to do, behind the code",
        "of its kind; a second line has a hint, where there is one, and where to read more.",
        "None contains a row, a key, a header or a secret. In Spark, an error of the driver's",
        "planning arrives inside PYTHON_DATA_SOURCE_ERROR, and one of a task inside the job's",
        "failure; the lines are the same. A warning is a line of the log, with a code as an error",
        "has it. A code keeps its meaning forever. `kprod explain CODE` says what is here, without",
        "a network or an extra ([the command line](cli.md)), also as `python -m spark_kafka_sink",
        "explain CODE`. What has no code",
        "of ours is in [troubleshooting](troubleshooting.md).",
    )
    yield ""
    yield from _kinds()
    yield from ("## The exceptions", "", "All are in `spark_kafka_sink.errors`.", "")
    yield from _tree(errors.KafkaError, 0)
    yield ""
    yield from heading(
        "What a broker can answer",
        *("Code", "Number", "Name", "What happens", "Exception", "Meaning", "Hint"),
        text=paragraph(
            "*Retried*: sent again with growing pauses, until it succeeds or",
            "kafka.delivery.timeout.ms is over. *Fails the batch*: the task fails, and Spark may",
            "run it again; MESSAGE_TOO_LARGE first has a batch of several records split.",
        ),
    )
    for code, info in sorted(errors.CODES.items()):
        yield row(
            _anchored(code.kp_code),
            str(int(code)),
            f"`{code.name}`",
            _REACTIONS[info.error_class],
            "" if code is errors.ErrorCode.NONE else f"`{info.error_type.__name__}`",
            info.meaning,
            ". ".join(filter(None, (info.hint, _in_runbook(code.kp_code)))),
        )


#: The areas of the codes, by their first two digits.
_AREAS = {
    "00": "General",
    "01": "Options",
    "02": "Columns and rows",
    "03": "Brokers",
    "04": "Who we are",
    "05": "Delivery",
    "06": "Commit and exactly-once",
    "07": "Code of your own, and reports",
    "09": "Bugs",
}


def _kinds() -> Iterator[str]:
    """A section for each kind, with its code as the anchor, and what its messages look like."""
    area = None
    for kind, entry in error_kinds.ENTRIES.items():
        if kind.kp_code[2:4] != area:
            area = kind.kp_code[2:4]
            yield from (f"## {_AREAS[area]}", "")
        yield from (f"### {_anchored(kind.kp_code)}: {entry.title}", "")
        if entry.says:
            yield from (*(f"> {_escaped(message)}  " for message in entry.says), "")
        for part in filter(None, (entry.advice, _in_runbook(kind.kp_code))):
            yield from (part, "")


def _in_runbook(code: str) -> str:
    """A link to the section that an error has there, or nothing."""
    anchor = documentation.RUNBOOK.get(code)
    if anchor is None:
        return ""
    page = f"{documentation.RUNBOOK_PAGE}.md"
    return f"Runbook: [{_sections(page)[anchor]}]({page}#{anchor})."


@cache
def _sections(page: str) -> dict[str, str]:
    """The titles of a page's sections by their anchors."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    titles = [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    return {title.lower().replace(" ", "-"): title for title in titles}


def _anchored(code: str) -> str:
    """The code, where an address that ends in ``#kp0301`` leads."""
    return f'<a id="{code.lower()}"></a>{code}'


def _escaped(message: str) -> str:
    """A message as it is, in Markdown."""
    return message.replace("*", "\\*").replace("_", "\\_")


_REACTIONS = {
    errors.ErrorClass.SUCCESS: "success",
    errors.ErrorClass.RETRIABLE: "retried",
    errors.ErrorClass.REFRESH_METADATA: "retried, with fresh metadata",
    errors.ErrorClass.FIND_COORDINATOR: "retried, with the coordinator looked up again",
    errors.ErrorClass.SEQUENCE: "depends on the batch's sequence",
    errors.ErrorClass.FATAL: "fails the batch",
}


def _tree(cls: type[errors.KafkaError], depth: int) -> Iterator[str]:
    private = cls.__name__.startswith("_")  # nobody can catch it: its children stand in its place
    if not private:
        text = inspect.getdoc(cls) or ""
        first = " ".join(text.split("\n\n")[0].split())
        yield f"{'    ' * depth}- `{cls.__name__}`: {first}"
    for child in cls.__subclasses__():
        if child.__module__ == errors.KafkaError.__module__:
            yield from _tree(child, depth if private else depth + 1)


def pages() -> Iterator[tuple[str, str]]:
    """Of each code its page: the code, and Markdown whose links are those of a page of docs/."""
    for kind, entry in error_kinds.ENTRIES.items():
        says = "".join(f"> {_escaped(message)}  \n" for message in entry.says)
        parts = (says and f"What it says:\n\n{says}", entry.advice, _in_runbook(kind.kp_code))
        yield kind.kp_code, _page(kind.kp_code, entry.title, *parts)
    for code, info in sorted(errors.CODES.items()):
        if code is errors.ErrorCode.NONE:
            continue
        told = f"A broker's answer: {info.meaning}."
        done = f"What the producer does: {_REACTIONS[info.error_class]}."
        raised = f"The exception: `{info.error_type.__name__}`."
        parts = (f"What helps: {info.hint}.", told, done, raised, _in_runbook(code.kp_code))
        yield code.kp_code, _page(code.kp_code, f"{code.name} ({int(code)})", *parts)


def _page(code: str, title: str, *parts: str) -> str:
    """What stands on the index about it, on its own."""
    index = f"[All errors](errors.md#{code.lower()}). Without a network: `kprod explain {code}`."
    return "\n\n".join((f"# {code}: {title}", *filter(None, parts), index)) + "\n"
