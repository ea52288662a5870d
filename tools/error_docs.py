"""Generates docs/errors.md, and a page of the site for each error code.

The texts come from the tables of errors: ``cli/errors.toml`` and ``base/errors.py`` define the
meaning of a code. The pages of the codes are built with the site, and are not in the repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tables import heading, paragraph, row

from spark_kafka_sink.base import documentation, errors
from spark_kafka_sink.cli.explanation import REACTIONS, advice_for, entries

ROOT = Path(__file__).resolve().parent.parent


def page_lines() -> Iterator[str]:
    """docs/errors.md, below its title: the index of all of them."""
    yield paragraph(
        "An error has two lines. The first line has the code and the problem. The second line ends",
        "with the command or the address that explains the code. If there is a remedy, the second",
        "line begins with a hint. No error contains a row, a key, a header or a secret. Spark puts",
        "its own words before the first line: PYTHON_DATA_SOURCE_ERROR for an error on the driver,",
        "and the message of the failed job for an error of a task. A code keeps its meaning in all",
        "later versions.",
    )
    yield ""
    yield paragraph(
        "Each code has a page on the site. `kprod explain CODE` prints this page, and needs no",
        "network. If the extra `cli` is not installed, run `python -m spark_kafka_sink.cli explain",
        "CODE`. For errors without a code, see [the runbook](runbook.md#messages-of-spark). The",
        "[API](api/exceptions.md) lists the exceptions, and the [glossary](glossary.md) explains",
        "words such as *commit log* and *decided*.",
    )
    yield ""
    yield from _kinds()
    yield from heading(
        "Error codes of brokers",
        *("Code", "Name", "Number", "What happens"),
        text=_REACTIONS_EXPLAINED,
    )
    for code, info in sorted(errors.CODES.items()):
        yield row(
            _anchored(code.kp_code),
            f"`{code.name}`",
            str(int(code)),
            _with_runbook(_REACTIONS[info.error_class], code.kp_code),
        )


_REACTIONS_EXPLAINED = f"""\
The last column shows what happens after the error:

* *Success*. {REACTIONS[errors.ErrorClass.SUCCESS]}
* *Retried*. {REACTIONS[errors.ErrorClass.RETRIABLE]}
* *Fails*. {REACTIONS[errors.ErrorClass.FATAL]} Exception: after MESSAGE_TOO_LARGE, \
a record batch of several records is first split and sent again.
* *Depends on other batches*. {REACTIONS[errors.ErrorClass.SEQUENCE]} \
[Sequence numbers](design/sequences.md) has the rules, for developers."""

#: The areas of the codes, by their first two digits.
_AREAS = {
    "00": "General",
    "01": "Options",
    "02": "Columns and rows",
    "03": "Brokers",
    "04": "Authentication",
    "05": "Delivery",
    "06": "Commit and exactly-once",
    "07": "Your code, and reports",
    "09": "Bugs",
}


def _kinds() -> Iterator[str]:
    """A table for each area."""
    area = None
    for kind, entry in entries().items():
        if kind.kp_code[2:4] != area:
            if area is not None:
                yield ""
            area = kind.kp_code[2:4]
            yield from heading(_AREAS[area], "Code", "Meaning")
        yield row(_anchored(kind.kp_code), _with_runbook(entry.title, kind.kp_code))
    yield ""


def _with_runbook(text: str, code: str) -> str:
    """``text``, with a link to the runbook where an error has a section."""
    link = _in_runbook(code)
    return f"{text} (runbook: {link})" if link else text


def _in_runbook(code: str) -> str:
    """A link to the section that an error has there, or nothing."""
    anchor = documentation.RUNBOOK.get(code)
    if anchor is None:
        return ""
    page = f"{documentation.RUNBOOK_PAGE}.md"
    return f"[{_sections(page)[anchor]}]({page}#{anchor})"


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
    errors.ErrorClass.SEQUENCE: "depends on other batches",
    errors.ErrorClass.FATAL: "fails",
}


def pages() -> Iterator[tuple[str, str]]:
    """Each code with its page in Markdown; links are relative to docs/."""
    for kind, entry in entries().items():
        says = "".join(f"> {_escaped(message)}  \n" for message in entry.says)
        parts = (says and f"Messages:\n\n{says}", entry.advice, _runbook(kind.kp_code))
        yield kind.kp_code, _page(kind.kp_code, entry.title, *parts)
    for code in sorted(errors.CODES):
        if code is errors.ErrorCode.NONE:
            continue
        parts = (*map(_escaped, advice_for(code)), _runbook(code.kp_code))
        yield code.kp_code, _page(code.kp_code, f"{code.name} ({int(code)})", *parts)


def _runbook(code: str) -> str:
    link = _in_runbook(code)
    return f"Runbook: {link}." if link else ""


def _page(code: str, title: str, *parts: str) -> str:
    """A page of the site with a title, paragraphs, and a link to the index."""
    index = f"[All errors](errors.md#{code.lower()}). Without a network: `kprod explain {code}`."
    return "\n\n".join((f"# {code}: {title}", *filter(None, parts), *_to_try(code), index)) + "\n"


def _to_try(code: str) -> Iterator[str]:
    """Commands that show more, by the code's area."""
    commands = _COMMANDS.get(code[2:4], _COMMANDS["03"] if code[2] == "1" else ())
    if commands:
        yield "## What to try"
        yield "```console\n" + "\n".join(f"$ {command}" for command in commands) + "\n```"


#: By area.
_COMMANDS = {
    "01": ("kprod options registry", "kprod check -t orders -c client.properties"),
    "03": ("kprod check -t orders -b broker1:9092",),
    "04": ("kprod check -t orders -c client.properties",),
    "05": ("kprod report show reports.jsonl", "kprod check -t orders -b broker1:9092"),
    "06": (
        "kprod txn list orders-sink -b broker1:9092",
        "kprod txn blockers orders -b broker1:9092",
    ),
}
