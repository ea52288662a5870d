"""Opens one connection to a broker for diagnostics, and reports the stage at which it fails.

:class:`ConnectionProbe` uses the selector and the channels of the network client, on the calling
thread. It sends only ApiVersions and the requests of the authentication. If a broker closes the
connection at ApiVersions, the probe tries an older version of ApiVersions once.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.bounded_lookup import resolve_within
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.channel.selectable import NetworkSend
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.client.api_versions import FALLBACKS, ApiVersions
from spark_kafka_sink.network.client.host_resolver import numeric, resolve_host
from spark_kafka_sink.protocol.frames import frame

#: The maximum duration of one poll, in ms. If a stage fails after another stage was completed in
#: the same poll, the probe can't distinguish the two.
_POLL_MS: Final = 20
_BUFFER: Final = -1  # the operating system's


class Stage(StrEnum):
    """The stages of a connection up to the first response, in order.

    A complete TCP stage does not prove that the broker works: the operating system accepts TCP
    connections even while the broker process is stopped.
    """

    NAME = "name"
    TCP = "TCP"
    TLS = "TLS"
    SASL = "SASL"
    API = "ApiVersions"


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of a connection attempt to the address ``remote``.

    * ``done``: the completed stages.
    * ``failed``: the stage that failed, or None.
    * ``reason``: a text that says why this stage failed.
    * ``timed_out``: true if this stage took too long.
    * ``hint``, ``kind``: the hint and the kind of the error, or None.
    """

    remote: str
    done: tuple[Stage, ...]
    failed: Stage | None = None
    reason: str = ""
    hint: str | None = None
    kind: Kind | ErrorCode | None = None
    timed_out: bool = False


class ConnectionProbe:
    """Makes connections to addresses, one after the other. Use it as a context manager, on one
    thread.

    References to secrets in the options are resolved here. Raises ConfigError for invalid options
    of TLS and SASL, or if a required package is not installed.
    """

    def __init__(self, config: ProducerConfig) -> None:
        self._clock = SystemClock()
        options = resolve(dict(config.security))
        self._builder = _Remembering.of(
            config.security_protocol, options, config.client_id, self._clock
        )
        self._selector = Selector(self._builder, self._clock, connections_max_idle_ms=-1)
        self._client_id = config.client_id
        protocol = config.security_protocol.upper()
        #: The stages between TCP and the first request.
        self.stages = tuple(
            stage
            for stage, is_in in (
                (Stage.TLS, protocol.endswith("SSL")),
                (Stage.SASL, protocol.startswith("SASL")),
            )
            if is_in
        )
        self._attempts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    def reach(self, host: str, port: int, *, timeout_ms: int) -> Reached:
        """Tries the addresses of ``host`` until one connection succeeds. Returns the result of the
        attempt that completed the most stages. ``timeout_ms`` limits the time of all attempts
        together.
        """
        deadline = self._clock.now_ms() + timeout_ms
        try:
            addresses = numeric(host) or resolve_within(timeout_ms / 1000, host, resolve_host)
        except OSError as error:
            return Reached(_address(host, port), (), Stage.NAME, error.strerror or str(error))
        best: Reached | None = None
        for tried, ip in enumerate(addresses):
            now = self._clock.now_ms()
            share_ms = (deadline - now) // (len(addresses) - tried)
            found = self._reach(host, (ip, port), now + share_ms, FALLBACKS[0])
            if found.failed is Stage.API and not found.timed_out:
                again = self._reach(host, (ip, port), now + share_ms, FALLBACKS[1])
                found = again if again.failed is None else found
            if best is None or len(found.done) > len(best.done):
                best = found
            if found.failed is None:
                break
        assert best is not None
        return best

    def _reach(self, host: str, address: tuple[str, int], deadline: int, version: int) -> Reached:
        self._attempts += 1
        node = self._attempts
        ip, port = address
        remote = _address(host, port) + f" ({ip})" * (host != ip)
        begun = self._clock.now_ms()
        try:
            self._selector.connect(node, host, address, _BUFFER, _BUFFER)
        except OSError as error:
            return Reached(remote, (Stage.NAME,), Stage.TCP, error.strerror or str(error))
        channel = self._builder.made
        done: tuple[Stage, ...] = (Stage.NAME,)
        asked = False
        while True:
            self._selector.poll(_POLL_MS)
            state = self._selector.disconnected.get(node)
            done = _stages(done, channel, self.stages)
            if state is not None:
                reason, why = state.detail or "the connection was closed", state.error
                of_error = (None, None) if why is None else (why.hint, why.kind)
                return Reached(remote, done, self._next(done), reason, *of_error)
            if channel.ready:
                done = (Stage.NAME, Stage.TCP, *self.stages)
                if not asked:
                    self._ask(node, version)
                    asked = True
            if any(one.source == node for one in self._selector.completed_receives):
                self._selector.close_channel(node)
                return Reached(remote, (*done, Stage.API))
            if self._clock.now_ms() >= deadline:
                self._selector.close_channel(node)
                reason = f"no answer within {self._clock.now_ms() - begun} ms"
                return Reached(remote, done, self._next(done), reason, timed_out=True)

    def _ask(self, node: int, version: int) -> None:
        request = ApiVersions().request
        self._selector.send(NetworkSend(node, *frame(request, version, node, self._client_id)))

    def _next(self, done: tuple[Stage, ...]) -> Stage:
        """The first stage that is not in ``done``."""
        return (Stage.NAME, Stage.TCP, *self.stages, Stage.API)[len(done)]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _stages(
    before: tuple[Stage, ...], channel: KafkaChannel, stages: tuple[Stage, ...]
) -> tuple[Stage, ...]:
    """Returns the stages of the connection ``channel`` that are complete now, at most up to TLS.
    (The caller adds SASL when the channel is ready.)

    * ``before``: the result of the previous call. It is returned again if the channel is not
      connected, or is closed.
    * ``stages``: the stages that the security protocol has between TCP and the first request.
    """
    if not channel.connected:
        return before
    done: tuple[Stage, ...] = (Stage.NAME, Stage.TCP)
    if Stage.TLS in stages and channel.transport.ready:
        done = (*done, Stage.TLS)
    return done if len(done) > len(before) else before


class _Remembering(ChannelBuilder):
    """A channel builder that remembers the last channel that it has created. The probe reads the
    state of this channel.
    """

    __slots__ = ("made",)

    made: KafkaChannel

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        self.made = super().build_channel(node_id, host, remote, sock)
        return self.made
