"""Chooses free TCP ports for brokers on the loopback address, and reserves them, even while the
brokers are stopped.

A broker must listen on the same port after a restart, because its clients know only this port.
While the broker is stopped, no other process may take the port. So this process binds a socket to
the port, and does not listen on this socket. While the broker is stopped, connections of clients
are refused.
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
    """A port of the loopback address, reserved until :meth:`release`."""

    __slots__ = ("_holder", "port")

    def __init__(self, port: int) -> None:
        """Reserves the port. Raises OSError if another process uses it."""
        self.port = port
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Bound without SO_REUSEADDR, so that another holder of this port is noticed. After
            # that, the option lets the broker bind the port: on Linux, two sockets can have the
            # same port if both have SO_REUSEADDR and this one does not listen. A process without
            # the option can't bind the port.
            holder.bind((HOST, port))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            holder.close()
            raise
        self._holder = holder

    def release(self) -> None:
        self._holder.close()


def reserve(port: int | None = None) -> ReservedPort:
    """Reserves the port ``port``. If ``port`` is None, reserves any free port below the ephemeral
    range.

    Raises LocalKafkaError if another process uses the port, or if no free port was found.
    """
    if port is not None:
        try:
            return ReservedPort(port)
        except OSError as error:
            raise LocalKafkaError(
                f"Port {port} of {HOST} can't be used: {error.strerror}.",
                hint="another process has it (see `ss -ltnp`); give another port, or none",
            ) from None
    # The operating system takes ports of the ephemeral range for connections, so the port is chosen
    # below this range.
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
