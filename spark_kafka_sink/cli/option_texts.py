"""The description of each option, for ``kprod options`` and docs/options.md.

This module reads ``options.toml``, which has the descriptions. Defaults and legal values are in
``config/option_table.py``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class OptionTexts:
    """Texts about options, by option name.

    * ``what``: the description of each option.
    * ``spark``: for options of Spark that the sink ignores, the reason.
    * ``importance``: high, medium or low, as Java's client documents it. Only Kafka's options that
      have an effect are there.
    * ``java_defaults``: for options whose default differs from Java's, Java's default and the
      reason for the difference.
    """

    what: Mapping[str, str]
    spark: Mapping[str, str]
    importance: Mapping[str, str]
    java_defaults: Mapping[str, tuple[str, str]]


@cache
def option_texts() -> OptionTexts:
    """The texts of all options, except internal, refused and removed options."""
    found = tomllib.loads(files(__package__).joinpath("options.toml").read_text("utf-8"))
    java = {name: (default, why) for name, (default, why) in found.pop("java_defaults").items()}
    spark = _joined(found.pop("spark"))
    what = {name: text for group in found.values() for name, text in _joined(group).items()}
    importance = {name: level for level in ("high", "medium", "low") for name in found[level]}
    return OptionTexts(what, spark, importance, java)


def _joined(group: Mapping[str, str]) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in group.items()}
