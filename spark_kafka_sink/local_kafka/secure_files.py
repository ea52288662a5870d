"""Writes the files for the container ``kafka-secure``, which runs a Kafka with TLS, SASL and ACLs.
The profile ``secure`` of ``docker-compose.yml`` starts the container, and mounts the files.

``python -m spark_kafka_sink.local_kafka --write-secure-files .secure`` writes the files. Each call
creates new passwords. The file ``client.properties`` is for clients on this machine. Kafka's
settings come from the directory ``conf/kafka`` and the module ``secure.py``, like the settings of a
:class:`KafkaCluster`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.secure import LISTENERS, Security
from spark_kafka_sink.local_kafka.server_properties import (
    read_properties,
    template_directory,
    write_properties,
)

#: The path of the directory in the container.
MOUNTED = Path("/secure")
#: The clients' listeners, on localhost.
PORTS: Mapping[str, int] = {
    "PLAINTEXT": 9092,
    "SSL": 9192,
    "SASL_SSL": 9292,
    "SASL_PLAINTEXT": 9392,
}
_CLUSTER_ID = "p1Y9xLwTRhWXHUV5u9JcHQ"

_START = f"""#!/bin/bash
# Formats the container's storage with the users of SCRAM, then runs the broker.
set -euo pipefail
mapfile -t users < {MOUNTED}/scram-users
/opt/kafka/bin/kafka-storage.sh format --ignore-formatted -t {_CLUSTER_ID} \\
    -c {MOUNTED}/server.properties "${{users[@]}}"
exec /opt/kafka/bin/kafka-server-start.sh {MOUNTED}/server.properties
"""


def write_secure_files(directory: Path) -> Path:
    """Writes the files into a new directory. Returns the path of the client's properties file.

    Raises LocalKafkaError, for example if ``directory`` already exists.
    """
    if directory.exists():
        raise LocalKafkaError(
            f"{directory} exists already.", hint="remove it for new certificates and passwords"
        )
    security = Security.make(directory)
    directory.chmod(0o700)
    inside = replace(
        security,
        ca=MOUNTED / security.ca.name,
        broker_key=MOUNTED / security.broker_key.name,
    )
    write_properties(directory / "server.properties", _server(inside))
    (directory / "scram-users").write_text("\n".join(security.format_options()) + "\n")
    (directory / "start.sh").write_text(_START)
    client = directory / "client.properties"
    options = security.client_options("SASL_SSL")
    address = {"bootstrap.servers": f"localhost:{PORTS['SASL_SSL']}"}
    write_properties(client, address | options)
    for path in directory.iterdir():
        path.chmod(0o600)
    return client


def _server(security: Security) -> dict[str, str]:
    protocols = {**LISTENERS, "INTERNAL": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    listeners = {**PORTS, "INTERNAL": 9093, "CONTROLLER": 9094}
    advertised = {name: port for name, port in listeners.items() if name != "CONTROLLER"}
    common = read_properties(template_directory() / "one-node.properties")
    return (
        common
        | security.server_properties(LISTENERS)
        | {
            "node.id": "1",
            "log.dirs": "/tmp/kafka-secure",  # noqa: S108 - in the container
            "listeners": ",".join(f"{name}://:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in advertised.items()
            ),
            "listener.security.protocol.map": ",".join(f"{n}:{p}" for n, p in protocols.items()),
            "controller.quorum.voters": f"1@localhost:{listeners['CONTROLLER']}",
        }
    )
