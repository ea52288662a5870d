"""The operator's allow-lists: the files, variables, addresses and code that options may reach.

Owns: the lists, which are environment variables of the driver and of each executor, so that no
option changes them; and the errors for a value that is not on a list. Never: opening a file or an
address that is allowed.

The lists are read when the package is imported (``operators_variables``), and then frozen: code
that an option has called can't change the limits of the next option, not even by ``os.environ``.

A list that is not set allows everything. A list that is set and empty allows nothing. If a list
can't be read, every value that would have to be compared with it is an error.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.operators_variables import VARIABLES

#: Files and directories: references, stores, token files, keytabs; config files without a list of
#: their own; the directory of checkpointLocation, which may be a URI. Kafka's ``allowed.paths``.
PATHS: Final = "KPROD_ALLOWED_PATHS"
#: Files and directories for ``configFile``, and for references to a line of one.
CONFIG_FILES: Final = "KPROD_ALLOWED_CONFIG_FILES"
#: Files and directories for ``reportPath``.
REPORT_PATHS: Final = "KPROD_ALLOWED_REPORT_PATHS"
#: A regular expression for the whole name of a variable. Kafka's ``allowlist.pattern``.
ENV_PATTERN: Final = "KPROD_ALLOWED_ENV_PATTERN"
#: Token endpoints. Kafka's ``org.apache.kafka.sasl.oauthbearer.allowed.urls``.
URLS: Final = "KPROD_ALLOWED_URLS"
#: Packages, modules and names that an import path may begin with.
IMPORTS: Final = "KPROD_ALLOWED_IMPORTS"

EVERY: Final = (PATHS, CONFIG_FILES, REPORT_PATHS, ENV_PATTERN, URLS, IMPORTS)


@dataclass(frozen=True, slots=True)
class _List:
    """An allow-list that the operator has set. It has ``items``, or a ``problem`` if the list can't
    be read.
    """

    items: tuple[str, ...] = ()
    names: re.Pattern[str] | None = None
    problem: str = ""


def _read(variable: str, text: str) -> _List:
    if variable == ENV_PATTERN:
        try:
            return _List(names=re.compile(text))
        except re.error as error:
            return _List(problem=f"it is no regular expression ({error.msg})")
    items = tuple(item for item in (part.strip() for part in text.split(",")) if item)
    if variable in (PATHS, CONFIG_FILES, REPORT_PATHS):
        for item in items:
            if not item.startswith("/") and "://" not in item:
                return _List(problem=f"{safe_text(item)} is no absolute path")
    return _List(items)


def read_lists(environment: Mapping[str, str]) -> Mapping[str, _List]:
    """Reads the allow-lists that are set in ``environment``. Returns them by variable, as an
    immutable map.
    """
    return MappingProxyType({v: _read(v, environment[v]) for v in EVERY if v in environment})


#: The lists of this process, read when the package was imported.
_LISTS: Final = read_lists(VARIABLES)


class NotAllowedError(ConfigError):
    """The operator of this process does not allow options to use this file, address, variable or
    class.
    """

    default_kind = Kind.NOT_ALLOWED

    @classmethod
    def of(cls, what: str, variable: str) -> NotAllowedError:
        """Creates the error for ``what``, a text that describes the option and the refused value.
        The text must contain no secret.
        """
        return cls(
            f"{what} is not allowed here: {variable} of this process on host {platform.node()} does"
            " not list it",
            hint="the operator sets that variable in the environment of driver and executors",
        )


def check_file(path: str, what: str, *, line: bool = False) -> None:
    """Raises NotAllowedError for a file that options may not read. ``line`` is true if the option
    refers to one line of a config file.

    The error does not show whether the file exists. Symbolic links are resolved before the check.
    """
    allowed = _list(PATHS)
    if allowed is None or _is_below(path, allowed):
        return
    others = _list(CONFIG_FILES) if line else None
    if others is not None and _is_below(path, others):
        return
    raise NotAllowedError.of(what, PATHS)


def check_uri(uri: str, what: str) -> None:
    """Raises NotAllowedError for a URI of a remote file system, unless it is below a URI of the
    list PATHS.
    """
    allowed = _list(PATHS)
    if allowed is not None and not any(
        uri.startswith(f"{entry.rstrip('/')}/") for entry in allowed.items if "://" in entry
    ):
        raise NotAllowedError.of(what, PATHS)


def check_config_file(path: str, what: str) -> None:
    """Raises NotAllowedError for a file that may not be a ``configFile``."""
    variable = PATHS if _list(CONFIG_FILES) is None else CONFIG_FILES
    allowed = _list(variable)
    if allowed is not None and not _is_below(path, allowed):
        raise NotAllowedError.of(what, variable)


def check_report_path(path: str) -> None:
    """Raises NotAllowedError for a file that reports may not be appended to."""
    allowed = _list(REPORT_PATHS)
    if allowed is not None and not _is_below(path, allowed):
        raise NotAllowedError.of(f"reportPath={safe_text(path)}", REPORT_PATHS)


def check_variable(name: str, what: str) -> None:
    """Raises NotAllowedError for an environment variable that options may not look up."""
    allowed = _list(ENV_PATTERN)
    if allowed is not None and (allowed.names is None or allowed.names.fullmatch(name) is None):
        raise NotAllowedError.of(what, ENV_PATTERN)


def check_url(url: str, what: str) -> None:
    """Raises NotAllowedError for a token endpoint that is not on the list. URLs are compared
    exactly, as Kafka does.
    """
    allowed = _list(URLS)
    if allowed is not None and url not in allowed.items:
        raise NotAllowedError.of(what, URLS)


def check_import(path: str, what: str) -> None:
    """Raises NotAllowedError unless the list has ``path``, or a module or package that contains it.

    After the listed name, no part of ``path`` may be private.
    """
    if limits_imports() and not any("._" not in rest for rest in _behind_entries(path)):
        raise NotAllowedError.of(what, IMPORTS)


def limits_imports() -> bool:
    """Whether the operator has set a list of imports."""
    return IMPORTS in _LISTS


def is_import_listed(path: str) -> bool:
    """Whether ``path`` is on the list of imports, or is inside a listed module or package."""
    return any(True for _ in _behind_entries(path))


def _behind_entries(path: str) -> Iterator[str]:
    """For each list entry with which ``path`` begins, yields the rest of ``path``."""
    allowed = _list(IMPORTS)
    dotted = f"{path.replace(':', '.')}."
    for entry in () if allowed is None else allowed.items:
        begin = entry.replace(":", ".")
        if dotted.startswith(f"{begin}."):
            yield dotted[len(begin) :]


def _list(variable: str) -> _List | None:
    """The list of ``variable``, or None if the variable is not set. Raises ConfigError if the list
    can't be read.
    """
    found = _LISTS.get(variable)
    if found is None or not found.problem:
        return found
    raise ConfigError(
        f"{variable}, in the environment of this process on host {platform.node()}, can't be"
        f" understood: {found.problem}",
        hint="this variable limits the places that options may name, so nothing is allowed until"
        " it is corrected",
        kind=Kind.NOT_ALLOWED,
    )


def _is_below(path: str, allowed: _List) -> bool:
    """Whether ``path`` is one of ``allowed``, or is below a directory of ``allowed``."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    for entry in (one for one in allowed.items if "://" not in one):
        directory = os.path.realpath(entry)
        if real == directory or real.startswith(directory.rstrip("/") + "/"):
            return True
    return False
