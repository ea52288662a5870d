"""Classes of a user's own, named in an option by import path.

Owns: the two ways to write one (``package.module:Name`` and ``package.module.Name``) and the error
for one that can't be had. Never: what such a class must be able to do (whoever asks checks that).

The driver calls :func:`find` too, and throws the result away: a wrong path is then an error before
any task starts, not in each of them.
"""

from __future__ import annotations

import importlib

from spark_kafka_sink.errors import ConfigError, safe_text


def find(path: str, option: str) -> object:
    """What ``path`` names. ConfigError, naming ``option``, when it can't be imported."""
    module, attribute = _parts(path, option)
    try:
        found: object = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:
        # An ImportError's text names modules; any other may hold anything.
        why = str(error) if isinstance(error, ImportError | AttributeError) else ""
        raise ConfigError(
            f"{option}: {safe_text(path)} can't be imported: {type(error).__name__}"
            f"{': ' + safe_text(why) if why else ''}",
            hint="the module must be importable on the driver and on every executor (installed"
            " there, or shipped with addPyFile)",
        ) from error
    return found


def is_import_path(name: str) -> bool:
    """Looks like one, and is no class of Kafka's."""
    return ("." in name or ":" in name) and not name.startswith("org.apache.kafka.")


def make(path: str, option: str) -> object:
    """What ``path`` names, called without arguments when it is a class, else as it is."""
    found = find(path, option)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        raise ConfigError(
            f"{option}: {safe_text(path)} can't be made without arguments: {type(error).__name__}",
            hint="a class named in an option is called without arguments",
        ) from error


def _parts(path: str, option: str) -> tuple[str, str]:
    module, colon, attribute = path.partition(":")
    if not colon:
        module, _, attribute = path.rpartition(".")
    if not module or not attribute:
        raise ConfigError(
            f"{option}: {safe_text(path)} is not an import path",
            hint="write package.module:Name or package.module.Name",
        )
    return module, attribute
