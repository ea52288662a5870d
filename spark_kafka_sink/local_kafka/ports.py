"""TCP ports that stay reserved while no broker listens on them.

Owns: choosing free ports on the loopback address and holding them. Never: listening.

A restarted broker must listen on its old port, because its clients know only this port. So no other
process may take the port while the broker is down. Two things could take the port: a process that
searches a free port, and the kernel, which gives outgoing connections ports of the ephemeral range.
So ports are chosen below that range, and each port is held by a socket that is bound but never
listens.

On Linux a broker can still bind the same port, because both sockets carry SO_REUSEADDR and the
holding socket does not listen. A process that probes without SO_REUSEADDR finds the port taken. A
client that connects while the broker is down is refused.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from spark_kafka_sink.local_kafka.errors import LocalKafkaError

HOST = "127.0.0.1"

_LOWEST = 15000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ReservedPort:
    """A port of the loopback address, held until :meth:`release`."""

    __slots__ = ("_holder", "port")

    def __init__(self, port: int) -> None:
        """Reserves ``port``. Raises OSError when another process has the port."""
        self.port = port
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Bound without SO_REUSEADDR, so that another holder of this port is noticed; only
            # then opened to the broker.
            holder.bind((HOST, port))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            holder.close()
            raise
        self._holder = holder

    def release(self) -> None:
        self._holder.close()


def reserve(port: int | None = None) -> ReservedPort:
    """Reserves ``port``, or any free port below the ephemeral range.

    Raises LocalKafkaError if ``port`` is taken.
    """
    if port is not None:
        try:
            return ReservedPort(port)
        except OSError as error:
            raise LocalKafkaError(
                f"Port {port} of {HOST} can't be used: {error.strerror}.",
                hint="another process has it (see `ss -ltnp`); give another port, or none",
            ) from None
    # A connection that ended a moment ago keeps its port busy for a minute; a random choice among
    # thousands rarely meets one.
    candidates = range(_LOWEST, _ephemeral_start())
    for _ in range(200):
        try:
            return ReservedPort(random.choice(candidates))  # noqa: S311 - not for cryptography
        except OSError:
            continue
    raise LocalKafkaError(
        f"No free TCP port was found on {HOST} between {candidates.start} and {candidates.stop}.",
        hint="end the processes that hold so many ports; `ss -ltnp` lists them",
    )


def _ephemeral_start() -> int:
    try:
        low = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        low = 32768
    return low if low >= _LOWEST + 1000 else 32768
