"""The description of each option, for ``kprod options`` and docs/options.md.

This module reads ``options.toml``, which has the descriptions. Defaults and legal values are in
``config/option_table.py``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.option_table import renamed

#: The mark of a list item.
_ITEM: Final = re.compile(r"^- ", re.MULTILINE)
#: The names of the producer's options that are also words. With a value, such as ``acks=all``, such
#: a word is an option.
_WORD_WITH_VALUE: Final = re.compile(r"(?<![\w.])(?=(?:acks|retries)=)")


@dataclass(frozen=True, slots=True)
class OptionTexts:
    """Texts about options, by option name. In ``what`` and ``on_page``, each name of a producer's
    option has the prefix ``kafka.``, as users write it.

    * ``what``: the description of each option, as one line.
    * ``on_page``: the same descriptions as Markdown, with paragraphs and lists.
    * ``spark``: for options of Spark that the sink ignores, the reason.
    * ``importance``: high, medium or low, as Java's client documents it. Only Kafka's options that
      have an effect are there.
    * ``java_defaults``: for options whose default differs from Java's, Java's default and the
      reason for the difference.
    """

    what: Mapping[str, str]
    on_page: Mapping[str, str]
    spark: Mapping[str, str]
    importance: Mapping[str, str]
    java_defaults: Mapping[str, tuple[str, str]]


@cache
def option_texts() -> OptionTexts:
    """The texts of all options, except internal, refused and removed options."""
    found = tomllib.loads(files(__package__).joinpath("options.toml").read_text("utf-8"))
    java = {name: (default, why) for name, (default, why) in found.pop("java_defaults").items()}
    spark = _joined(found.pop("spark"))
    texts = {n: _with_prefix(text) for group in found.values() for n, text in group.items()}
    importance = {name: level for level in ("high", "medium", "low") for name in found[level]}
    on_page = {name: _markdown(text) for name, text in texts.items()}
    return OptionTexts(_joined(texts), on_page, spark, importance, java)


def _with_prefix(text: str) -> str:
    """Adds the prefix ``kafka.`` to each name of a producer's option in ``text``."""
    text = _WORD_WITH_VALUE.sub(PREFIX, text)
    return renamed(text, lambda name: PREFIX + name if "." in name else name)


def _joined(texts: Mapping[str, str]) -> dict[str, str]:
    """Makes one line of each text. The marks of list items are removed."""
    return {name: " ".join(_ITEM.sub("", text).split()) for name, text in texts.items()}


def _markdown(text: str) -> str:
    """Joins the lines of each paragraph and of each list item in ``text``."""
    blocks = re.split(r"(\n\n|\n(?=- ))", text.strip())
    return "".join(one if not one.strip() else " ".join(one.split()) for one in blocks)
