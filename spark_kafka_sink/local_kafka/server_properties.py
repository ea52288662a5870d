"""Reads and writes the server configuration files of Kafka. They are based on the templates in
``conf/kafka``.

This module finds ``conf/kafka``, and writes files in Java's properties format.
``base/security/java_properties.py`` parses this format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.ports import HOST

_IN_NAMES: Final = re.compile(r"[ \t\f=:#!]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_INTERNAL, _CONTROLLER = "INTERNAL", "CONTROLLER"


def template_directory() -> Path:
    """The directory ``conf/kafka``. In an installed package it is next to this module, in a
    checkout it is at the top of the repository.
    """
    here = Path(__file__).resolve().parent
    for directory in (here / "conf", here.parents[1] / "conf" / "kafka"):
        if (directory / "one-node.properties").exists():
            return directory
    raise LocalKafkaError(
        f"The Kafka server templates are neither in {here / 'conf'} nor in the repository.",
        hint="the installation is incomplete; install spark-kafka-sink again",
    )


def read_properties(path: Path) -> dict[str, str]:
    """Reads a file in Java's properties format, such as a file that :func:`write_properties` or a
    broker has written. Returns the values by name, in the order of the file.
    """
    return parse_properties(path.read_text(encoding="utf-8"))


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Writes ``properties`` to a file in Java's properties format."""
    lines = (f"{_escape_name(name)}={_escape(value)}\n" for name, value in properties.items())
    path.write_text("".join(lines), encoding="ascii")


def _escape_name(name: str) -> str:
    """Escapes the characters that would end a name or begin a comment."""
    return _IN_NAMES.sub(r"\\\g<0>", _escape_controls(name))


def _escape(value: str) -> str:
    escaped = _escape_controls(value)
    # Only a leading blank would be lost; the others separate nothing once '=' has been seen.
    return f"\\{escaped}" if escaped.startswith((" ", "\t", "\f")) else escaped


def _escape_controls(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    # Kafka reads its files as ISO 8859-1. Other characters are written by their number in UTF-16.
    return _NOT_ASCII.sub(_by_number, escaped)


def _by_number(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass").hex()
    return re.sub("....", r"\\u\g<0>", units)


def node_properties(
    node_id: int,
    log_directory: Path,
    client_listeners: Mapping[str, tuple[str, int]],
    *,
    internal_port: int,
    voters: Mapping[int, int],
) -> dict[str, str]:
    """The server settings that are different for each node.

    * ``client_listeners``: the security protocol and the port of each listener for clients, such as
      ``{"PLAINTEXT": ("PLAINTEXT", 19092)}``.
    * ``internal_port``: the port of the listener that brokers use among themselves. A proxy before
      the listeners for clients does not affect it.
    * ``voters``: the port of the controller of each node, by node id.
    """
    ports = {name: port for name, (_, port) in client_listeners.items()}
    protocols = {name: protocol for name, (protocol, _) in client_listeners.items()}
    protocols |= {_INTERNAL: "PLAINTEXT", _CONTROLLER: "PLAINTEXT"}
    advertised = [f"{name}://{HOST}:{p}" for name, p in {**ports, _INTERNAL: internal_port}.items()]
    return {
        "node.id": str(node_id),
        "log.dirs": str(log_directory),
        "listeners": ",".join([*advertised, f"{_CONTROLLER}://{HOST}:{voters[node_id]}"]),
        "advertised.listeners": ",".join(advertised),
        "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
        "controller.quorum.voters": ",".join(f"{id_}@{HOST}:{p}" for id_, p in voters.items()),
    }


def with_overrides(properties: Mapping[str, str], overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns ``properties`` with the settings of ``overrides``.

    If ``overrides`` has ``advertised.listeners`` without the listener that brokers use among
    themselves, this listener is added. Kafka rejects the setting without it.
    """
    merged = {**properties, **overrides}
    name = "advertised.listeners"
    own = next(a for a in properties[name].split(",") if a.startswith(f"{_INTERNAL}://"))
    if f"{_INTERNAL}://" not in merged[name]:
        merged[name] += f",{own}"
    return merged
