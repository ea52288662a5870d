"""The operator's allow-lists: they limit the files, environment variables, addresses and classes
that options may name.

Each list is an environment variable of the driver and of each executor, so no option can change it:

* A list that is not set allows all values.
* An empty list allows no value.
* If a list can't be parsed, each check against this list raises ConfigError.

The lists are read once, when the package is imported. Code that runs after the import, such as a
user's class, can't change the lists.

The functions ``check_...`` compare a value with its list. Their argument ``what`` describes the
option and its value, for the error message. ``what`` must not contain a secret.
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

#: Files and directories for references, stores, token files and keytabs, and the directory of
#: checkpointLocation, which may be a URI. If CONFIG_FILES is not set, this list is also for config
#: files. Kafka's option is ``allowed.paths``.
PATHS: Final = "KPROD_ALLOWED_PATHS"
#: Files and directories for ``configFile``, and for references to one line of such a file.
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
    """An allow-list that the operator has set.

    ``items`` are the items of the list. The allow-list for environment variables has a regular
    expression, ``names``, in place of items. If the list can't be parsed, ``problem`` is the
    reason.
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
    """Reads the allow-lists that are set in ``environment``. Returns an immutable mapping from the
    name of the environment variable to the list.
    """
    return MappingProxyType({v: _read(v, environment[v]) for v in EVERY if v in environment})


#: The lists of this process, read when the package was imported.
_LISTS: Final = read_lists(VARIABLES)


class NotAllowedError(ConfigError):
    """An option names a file, address, environment variable or class that is not on the operator's
    allow-list.
    """

    default_kind = Kind.NOT_ALLOWED

    @classmethod
    def of(cls, what: str, variable: str) -> NotAllowedError:
        """Creates the error. ``what`` describes the option and its value, and must contain no
        secret. ``variable`` is the environment variable that has the list.
        """
        return cls(
            f"{what} is not allowed here: {variable} of this process on host {platform.node()} does"
            " not list it",
            hint="the operator sets that variable in the environment of driver and executors",
        )


def check_file(path: str, what: str, *, line: bool = False) -> None:
    """Raises NotAllowedError if options may not read the file ``path``. The error does not show
    whether the file exists.

    Symbolic links are resolved before the check. ``line`` is True for an option that reads only one
    line of the file. Then a file that is allowed as ``configFile`` is also allowed.
    """
    allowed = _list(PATHS)
    if allowed is None or _is_below(path, allowed):
        return
    others = _list(CONFIG_FILES) if line else None
    if others is not None and _is_below(path, others):
        return
    raise NotAllowedError.of(what, PATHS)


def check_uri(uri: str, what: str) -> None:
    """Raises NotAllowedError if ``uri``, a file in a remote file system, is not allowed.

    The operator's list of paths can also contain URIs. ``uri`` is allowed if it is below one of
    these URIs. If the list is not set, every URI is allowed.
    """
    allowed = _list(PATHS)
    if allowed is not None and not any(
        uri.startswith(f"{entry.rstrip('/')}/") for entry in allowed.items if "://" in entry
    ):
        raise NotAllowedError.of(what, PATHS)


def check_config_file(path: str, what: str) -> None:
    """Raises NotAllowedError if the file ``path`` is not allowed as a ``configFile``. If the
    operator has not set the list of config files, the list of paths is used.
    """
    variable = PATHS if _list(CONFIG_FILES) is None else CONFIG_FILES
    allowed = _list(variable)
    if allowed is not None and not _is_below(path, allowed):
        raise NotAllowedError.of(what, variable)


def check_report_path(path: str) -> None:
    """Raises NotAllowedError if reports may not be written to the file ``path``."""
    allowed = _list(REPORT_PATHS)
    if allowed is not None and not _is_below(path, allowed):
        raise NotAllowedError.of(f"reportPath={safe_text(path)}", REPORT_PATHS)


def check_variable(name: str, what: str) -> None:
    """Raises NotAllowedError if options may not read the environment variable ``name``."""
    allowed = _list(ENV_PATTERN)
    if allowed is not None and (allowed.names is None or allowed.names.fullmatch(name) is None):
        raise NotAllowedError.of(what, ENV_PATTERN)


def check_url(url: str, what: str) -> None:
    """Raises NotAllowedError if the URL of a token endpoint is not on the list. The URL must be
    equal to a listed URL, as in Kafka.
    """
    allowed = _list(URLS)
    if allowed is not None and url not in allowed.items:
        raise NotAllowedError.of(what, URLS)


def check_import(path: str, what: str) -> None:
    """Raises NotAllowedError if the operator's allow-list of imports does not allow ``path``, the
    import path of a class or function.

    If the list is set, ``path`` is allowed in two cases:

    * The list contains ``path`` itself.
    * The list contains a package or module that ``path`` begins with, and all following names are
      public. Names that begin with an underscore are private.
    """
    if limits_imports() and not any("._" not in rest for rest in _behind_entries(path)):
        raise NotAllowedError.of(what, IMPORTS)


def limits_imports() -> bool:
    """True if the operator has set the allow-list of imports."""
    return IMPORTS in _LISTS


def is_import_listed(path: str) -> bool:
    """True if ``path`` is on the allow-list of imports, or is in a listed module or package."""
    return any(True for _ in _behind_entries(path))


def _behind_entries(path: str) -> Iterator[str]:
    """Compares ``path`` with the allow-list of imports. If ``path`` begins with the names of an
    item, yields the rest of ``path``, with dots instead of colons and a dot at the end.

    Two examples for the path ``my_package.module:Name``:

    * The item ``my_package`` yields ``.module.Name.``.
    * The item ``my_package.module:Name`` yields ``.``.
    """
    allowed = _list(IMPORTS)
    dotted = f"{path.replace(':', '.')}."
    for entry in () if allowed is None else allowed.items:
        begin = entry.replace(":", ".")
        if dotted.startswith(f"{begin}."):
            yield dotted[len(begin) :]


def _list(variable: str) -> _List | None:
    """The allow-list in the environment variable ``variable``. None if the variable is not set.
    Raises ConfigError if the list can't be parsed.
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
    """True if ``path`` is an item of ``allowed``, or is in a directory of ``allowed``. Symbolic
    links are resolved before the comparison. The URIs in ``allowed`` are ignored.
    """
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    for entry in (one for one in allowed.items if "://" not in one):
        directory = os.path.realpath(entry)
        if real == directory or real.startswith(directory.rstrip("/") + "/"):
            return True
    return False
