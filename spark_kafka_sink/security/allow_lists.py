"""What an operator lets options reach: files, variables, addresses, code.

Owns: the lists, which are variables of the environment of the driver and of each executor, so that
no option changes them; and the errors for what is not on one. Never: opening what was allowed.

A list that is not set allows everything; one that is set and empty allows nothing. A list that
can't be read is an error for everything that it would decide.
"""

from __future__ import annotations

import os
import platform
import re
from typing import Final

from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError, safe_text

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


class NotAllowedError(ConfigError):
    """The operator of this process does not let options reach that."""

    default_kind = Kind.NOT_ALLOWED

    @classmethod
    def of(cls, what: str, variable: str) -> NotAllowedError:
        """``what`` names option and reference, and must be fit to be shown."""
        return cls(
            f"{what} is not allowed here: {variable} of this process on host {platform.node()} does"
            " not list it",
            hint="the operator sets that variable in the environment of driver and executors",
        )


def check_file(path: str, what: str, *, line: bool = False) -> None:
    """NotAllowedError for a file that may not be read; with ``line``, one line of a config file.

    Says nothing of whether it exists. Symbolic links count as what they lead to.
    """
    allowed = _paths(PATHS)
    if allowed is None or _is_below(path, allowed):
        return
    if line and _is_below(path, _paths(CONFIG_FILES) or ()):
        return
    raise NotAllowedError.of(what, PATHS)


def check_uri(uri: str, what: str) -> None:
    """NotAllowedError for a file of another file system, unless a URI of PATHS is above it."""
    allowed = _items(PATHS)
    if allowed is not None and not any(
        uri.startswith(f"{entry.rstrip('/')}/") for entry in allowed if "://" in entry
    ):
        raise NotAllowedError.of(what, PATHS)


def check_config_file(path: str, what: str) -> None:
    """NotAllowedError for a file that may not be a ``configFile``."""
    variable = PATHS if _paths(CONFIG_FILES) is None else CONFIG_FILES
    allowed = _paths(variable)
    if allowed is not None and not _is_below(path, allowed):
        raise NotAllowedError.of(what, variable)


def check_report_path(path: str) -> None:
    """NotAllowedError for a file that no report may be appended to."""
    allowed = _paths(REPORT_PATHS)
    if allowed is not None and not _is_below(path, allowed):
        raise NotAllowedError.of(f"reportPath={safe_text(path)}", REPORT_PATHS)


def check_variable(name: str, what: str) -> None:
    """NotAllowedError for a variable that options may not look up."""
    pattern = os.environ.get(ENV_PATTERN)
    if pattern is None:
        return
    try:
        allowed = re.compile(pattern)
    except re.error as error:
        raise _unreadable(ENV_PATTERN, f"it is no regular expression ({error.msg})") from None
    if allowed.fullmatch(name) is None:
        raise NotAllowedError.of(what, ENV_PATTERN)


def check_url(url: str, what: str) -> None:
    """NotAllowedError for a token endpoint that is not allowed; compared exactly, as in Kafka."""
    allowed = _items(URLS)
    if allowed is not None and url not in allowed:
        raise NotAllowedError.of(what, URLS)


def check_import(path: str, what: str) -> None:
    """NotAllowedError unless ``path`` or a module or package that it is in may be imported."""
    allowed = _items(IMPORTS)
    dotted = path.replace(":", ".")
    if allowed is None or any(
        dotted == entry or dotted.startswith(f"{entry}.")
        for entry in (item.replace(":", ".") for item in allowed)
    ):
        return
    raise NotAllowedError.of(what, IMPORTS)


def limits_imports() -> bool:
    """Whether there is a list of what may be imported."""
    return IMPORTS in os.environ


def _items(variable: str) -> tuple[str, ...] | None:
    text = os.environ.get(variable)
    if text is None:
        return None
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def _paths(variable: str) -> tuple[str, ...] | None:
    items = _items(variable)
    if items is None:
        return None
    local = tuple(item for item in items if "://" not in item)
    for item in local:
        if not item.startswith("/"):
            raise _unreadable(variable, f"{safe_text(item)} is no absolute path")
    return local


def _unreadable(variable: str, problem: str) -> ConfigError:
    return ConfigError(
        f"{variable}, in the environment of this process on host {platform.node()}, can't be"
        f" understood: {problem}",
        hint="it decides what options may reach, so nothing is allowed until it is fixed",
        kind=Kind.NOT_ALLOWED,
    )


def _is_below(path: str, allowed: tuple[str, ...]) -> bool:
    """``path`` is one of ``allowed``, or below one that is a directory."""
    try:
        real = os.path.realpath(path)
    except (OSError, ValueError):
        return False
    for entry in allowed:
        directory = os.path.realpath(entry)
        if real == directory or real.startswith(directory.rstrip("/") + "/"):
            return True
    return False
