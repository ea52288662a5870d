"""The command ``python -m spark_kafka_sink.local_kafka``: runs a Kafka in the foreground until
Ctrl-C or SIGTERM.

When all nodes serve requests, the command prints the bootstrap address on standard output, as one
line. With ``--secure``, it prints the text of a client's properties file instead. Progress is
printed on standard error.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import FrameType

from spark_kafka_sink.local_kafka.cluster import KafkaCluster
from spark_kafka_sink.local_kafka.distribution import KAFKA_VERSION, RELEASES
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.installation import prepare
from spark_kafka_sink.local_kafka.node import NodeState
from spark_kafka_sink.local_kafka.registry.schema_registry import SchemaRegistry
from spark_kafka_sink.local_kafka.secure import LISTENERS, MECHANISMS
from spark_kafka_sink.local_kafka.secure_files import write_secure_files


def main(arguments: list[str] | None = None) -> int:
    """Runs the command with these arguments. Returns its exit status."""
    options = _parse(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    # SIGTERM takes the way of Ctrl-C, so that one handler stops the nodes at any moment.
    signal.signal(signal.SIGTERM, _interrupt)
    # A shell starts background jobs with SIGINT ignored; `kill -INT` shall work there too.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        if options.write_secure_files is not None:
            print(write_secure_files(options.write_secure_files))
            return 0
        if options.prepare:
            print(prepare(options.kafka_version).distribution.home)
            return 0
        registry = SchemaRegistry() if options.registry else None
        with (
            nullcontext() if registry is None else registry,
            KafkaCluster(
                options.nodes,
                port=options.port,
                overrides=dict(options.property),
                heap=options.heap,
                full_jvm=options.full_jvm,
                secure=options.secure,
                version=options.kafka_version,
            ) as cluster,
        ):
            if registry is not None:
                print(f"Its schema registry is {registry.url}", file=sys.stderr)
            # The address comes last: its reader may stop the command immediately.
            print(f"Kafka {cluster.version} is ready; Ctrl-C stops it.", file=sys.stderr)
            print(_client_properties(cluster) if options.secure else cluster.bootstrap, flush=True)
            return _watch(cluster)
    except LocalKafkaError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 0


def _client_properties(cluster: KafkaCluster) -> str:
    """The text of a properties file for clients that use SASL_SSL with SCRAM-SHA-512. The text also
    has the settings for the other listeners and mechanisms, as comments.
    """
    lines = [f"# PLAINTEXT, for tools: bootstrap.servers={cluster.bootstrap}"]
    for listener, protocol in LISTENERS.items():
        for mechanism in MECHANISMS if protocol.startswith("SASL") else ("",):
            if protocol == "PLAINTEXT":
                continue
            chosen = (protocol, mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
            options = cluster.client_options(listener, mechanism)
            lines += ["", f"# {protocol} {mechanism}".rstrip()]
            lines += [f"{'' if chosen else '# '}{n}={value}" for n, value in options.items()]
    lines += ["", "# alice may do everything; bob nothing, without an ACL:"]
    lines.append(f"# {cluster.client_options('SASL_SSL', user='bob')['sasl.jaas.config']}")
    return "\n".join(lines)


def _watch(cluster: KafkaCluster) -> int:
    """Waits until a broker process ends unexpectedly. Prints the end of its log, and returns the
    exit status 1.
    """
    while True:
        for node in cluster.nodes:
            if node.state is NodeState.STOPPED:
                print(f"node {node.node_id} has exited:\n{node.log_tail()}", file=sys.stderr)
                return 1
        time.sleep(0.5)


def _interrupt(_signal_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _property(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not name=value")
    return name, value


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m spark_kafka_sink.local_kafka",
        description="Run a real Apache Kafka on this machine until Ctrl-C.",
    )
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1)
    parser.add_argument(
        "--kafka-version",
        choices=tuple(RELEASES),
        default=KAFKA_VERSION,
        help=f"default: {KAFKA_VERSION}; another one is fetched when it is first used",
    )
    parser.add_argument("--port", type=int, help="port of the first node (default: a free one)")
    parser.add_argument(
        "--property",
        type=_property,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a server property that overrides conf/kafka; may be repeated",
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="listeners SSL, SASL_SSL and SASL_PLAINTEXT too, users, certificates and ACLs;"
        " prints a client's properties file",
    )
    parser.add_argument(
        "--write-secure-files",
        type=Path,
        metavar="DIRECTORY",
        help="only make what docker-compose.yml's profile secure mounts (as .secure)",
    )
    parser.add_argument(
        "--registry",
        action="store_true",
        help="a schema registry too, in memory; its address goes to standard error",
    )
    parser.add_argument("--heap", default="512m", help="heap of each broker (default: 512m)")
    parser.add_argument(
        "--full-jvm", action="store_true", help="both compiler tiers and G1, for measurements"
    )
    parser.add_argument(
        "--prepare",
        action="store_true",
        help="only fetch the distribution, and print its directory",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
