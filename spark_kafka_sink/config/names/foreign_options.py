"""The option names of other software: a consumer, Connect, a schema registry, librdkafka.

This module reads ``foreign_options.toml``, and finds the software that a name belongs to.
``unknown_options`` creates the error for such a name.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.suggestions import nearest_name
from spark_kafka_sink.config.option_table import SINK_OPTIONS


@dataclass(frozen=True, slots=True)
class Component:
    """A client or program that has its own options, such as a consumer.

    * ``component``: the name of the client or program in messages.
    * ``instead``: the advice for a user who sets one of its options.
    * ``names`` and ``beginnings``: its option names, and the beginnings of further option names.
    * ``in_files``: True if its options are ignored in a properties file, which several clients can
      share.
    """

    component: str
    instead: str
    names: tuple[str, ...] = ()
    beginnings: tuple[str, ...] = ()
    in_files: bool = False

    def owns(self, key: str) -> bool:
        return key in map(str.lower, self.names) or (
            key.startswith(self.beginnings) and nearest_name(key, SINK_OPTIONS, _MISSPELT) is None
        )


#: A name that is so similar to an option of ours is a misspelling of it, and no other component's.
_MISSPELT = 0.9


@dataclass(frozen=True, slots=True)
class ForeignOptions:
    """The content of ``foreign_options.toml``.

    ``owners`` has the software whose option names are known. The keys are short names, such as
    ``consumer``. ``librdkafka`` maps librdkafka's option names to Java's names, or to None if Java
    has no such option.
    """

    owners: Mapping[str, Component]
    librdkafka: Mapping[str, str | None]


@cache
def foreign_options() -> ForeignOptions:
    """Reads ``foreign_options.toml`` at the first call, and keeps the result."""
    data = tomllib.loads(files(__package__).joinpath("foreign_options.toml").read_text("utf-8"))
    owners = {
        key: Component(
            one["component"],
            one["instead"].replace("{formats}", page_address("formats")),
            tuple(one.get("names", "").split()),
            tuple(one.get("beginnings", "").split()),
            one.get("in_files", False),
        )
        for key, one in data["owners"].items()
    }
    alone = dict.fromkeys(data["librdkafka_only"]["names"].split())
    return ForeignOptions(owners, data["librdkafka"] | alone)


def is_left_out_of_files(key: str) -> bool:
    """True if ``key`` is an option of another client, such as a consumer. Clients can share a
    properties file, so a line with such an option is ignored. ``key`` is in lower case and has no
    prefix.
    """
    return any(one.in_files and one.owns(key) for one in foreign_options().owners.values())
