"""The steps of ``kprod check`` that connect to brokers: name, TCP, TLS, SASL, the first response.

This module chooses the brokers, and explains a failed connection.
``network/client/connection_probe.py`` opens the connections.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    named,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.checks.check_steps import (
    Step,
    failed,
    ok,
    red,
    skipped,
    yellow,
)
from spark_kafka_sink.network.client.client_factory import impatient
from spark_kafka_sink.network.client.connection_failures import WANTS_SASL
from spark_kafka_sink.network.client.connection_probe import ConnectionProbe, Reached, Stage
from spark_kafka_sink.protocol.cluster import Cluster, Node

CLUSTER, BROKERS = "cluster", "brokers"
#: The steps of this module, in order.
OF_CONNECTION: Final = (*map(str, Stage), CLUSTER, BROKERS)

#: The largest number of bootstrap servers, and of brokers, to which the check connects. A firewall
#: usually treats the other brokers of a large cluster in the same way.
_MOST_ADDRESSES: Final = 12
#: The time limit in ms for the response of a bootstrap server or broker.
_ANSWER_MS: Final = 5_000
#: The time limit in ms for a further bootstrap server, after another one has responded.
_ANOTHER_MS: Final = 2_000
#: The time limit in ms of one request to a listener that may require a login. The listener must
#: close the connection _CLOSED times, because a broker that restarts also closes a connection.
_ROUND_MS: Final = 500
_CLOSED: Final = 2
#: The time in ms for which a dead broker stays in the metadata: a little more than
#: broker.session.timeout.ms (9 s).
_DEATH_MS: Final = 12_000

_OPTIONS: Final = {
    Stage.NAME: "kafka.bootstrap.servers",
    Stage.TCP: "kafka.bootstrap.servers",
    Stage.TLS: "kafka.security.protocol and kafka.ssl.*",
    Stage.SASL: "kafka.sasl.*",
    Stage.API: "that its process is not stopped, and that it is a listener of Kafka's, for "
    "kafka.security.protocol",
}
_KINDS: Final = {
    Stage.NAME: Kind.UNRESOLVED_ADDRESS,
    Stage.TCP: Kind.NOT_CONNECTED,
    Stage.TLS: Kind.WRONG_LISTENER,
    Stage.SASL: Kind.AUTHENTICATION,
    Stage.API: Kind.NOT_CONNECTED,
}


class Contact(NamedTuple):
    """The result of connecting to the bootstrap servers.

    * ``best``: the server that passed the most stages of a connection. The stages are name, TCP,
      TLS, SASL and ApiVersions.
    * ``failed``: the other servers that failed in a stage.
    * ``producer``: the producer's config with only the servers that responded. If no server
      responded, it has all servers.
    """

    best: Reached
    failed: Sequence[Reached]
    producer: ProducerConfig


def contact(probe: ConnectionProbe, producer: ProducerConfig, timeout_ms: int) -> Contact:
    """Connects to the bootstrap servers, at most to the first 12. A server that can't be reached is
    not an error here, because one reachable server is enough for a write.
    """
    found: list[Reached] = []
    limit_ms = min(timeout_ms, _ANSWER_MS)
    answer = []
    for server in producer.bootstrap_servers[:_MOST_ADDRESSES]:
        found.append(probe.reach(*server, timeout_ms=limit_ms))
        if found[-1].failed is None:
            answer.append(server)
            limit_ms = min(timeout_ms, _ANOTHER_MS)
    best = max(found, key=lambda one: len(one.done))
    failed = [one for one in found if one is not best and one.failed is not None]
    # A client with this config does not wait for a dead server.
    servers = tuple(answer) or producer.bootstrap_servers
    return Contact(best, failed, impatient(replace(producer, bootstrap_servers=servers)))


def connection(made: Contact, probe: ConnectionProbe, producer: ProducerConfig) -> Iterator[Step]:
    """Yields the results of the connection to the bootstrap server ``made.best``, one for each
    stage: host name, TCP, TLS and SASL. Ends after a failed stage.

    The last stage is API: the first request and its response. This function yields the result of
    API only after a timeout. In all other cases, :func:`answered` yields this result.
    """
    reached, protocol = made.best, producer.security_protocol
    for stage in Stage:
        if stage in (Stage.TLS, Stage.SASL) and stage not in probe.stages:
            yield skipped(stage, f"kafka.security.protocol is {protocol}")
        elif stage is reached.failed and (stage is not Stage.API or reached.timed_out):
            yield _unreached(stage, f"{reached.remote}: {reached.reason}", reached)
            return
        elif stage is not Stage.API:
            yield _passed(made, stage, reached.remote, producer)


def _passed(made: Contact, stage: Stage, said: str, producer: ProducerConfig) -> Step:
    """Creates the result of ``stage``, after the connection to the bootstrap server ``made.best``
    has passed this stage. ``said`` is the text of the result. If other bootstrap servers have
    failed in the same stage, the state is WARNING, and the text also lists these servers.
    """
    others = [one for one in made.failed if one.failed is stage]
    if not others:
        return ok(stage, said)
    down = named([f"{one.remote}: {one.reason}" for one in others], _MOST_ADDRESSES)
    return yellow(
        stage,
        f"{said}; {len(others)} of {len(producer.bootstrap_servers)} bootstrap servers can't be "
        f"reached: {down}",
        "start them, or take them out of kafka.bootstrap.servers: a write must reach at least one "
        "broker",
        _kind_of(others[0]),
    )


def _kind_of(found: Reached) -> Kind | ErrorCode:
    """The error code of a failed stage. A timeout counts as "not connected" in every stage."""
    stage = Stage.API if found.timed_out else found.failed or Stage.TCP
    return found.kind or _KINDS[stage]


def _unreached(stage: Stage, said: str, found: Reached) -> Step:
    silent = found.timed_out and stage not in (Stage.NAME, Stage.TCP)
    change = found.hint or f"check {_OPTIONS[Stage.API if silent else stage]}"
    return red(stage, said, change, _kind_of(found))


def answered(
    admin: AdminClient,
    probe: ConnectionProbe,
    made: Contact,
    producer: ProducerConfig,
    timeout_ms: int,
) -> Generator[Step, None, Cluster | None]:
    """Yields the results of :func:`connection`, and then the result of the first request. Returns
    the cluster, or None if no broker responds.
    """
    rows, reached = list(connection(made, probe, producer)), made.best
    limit_ms = min(timeout_ms, _ANSWER_MS) if reached.failed else timeout_ms  # it may be slow
    try:
        # Two failures appear only at the first request:
        # * With TLS 1.3, a broker rejects a client certificate after the handshake.
        # * A listener that requires a login responds to ApiVersions without a login, and closes the
        #   connection at the next request.
        cluster = _first_response(admin, limit_ms)
    except AuthenticationError as error:
        last = str(probe.stages[-1]) if probe.stages else Stage.API
        yield from (failed(last, error) if row.name == last else row for row in rows)
        if last == Stage.API:
            yield failed(Stage.API, error)
        return None
    except KafkaError as error:
        if Stage.SASL in probe.stages or not _wants_login(admin):
            yield from (*rows, failed(Stage.API, error))
        else:
            no_login = _no_login(reached, admin.config.security_protocol)
            yield from (no_login if row.name == Stage.SASL else row for row in rows)
        return None
    yield from rows
    yield _passed(made, Stage.API, f"{reached.remote} speaks Kafka", producer)
    count = len(cluster.nodes)
    yield ok(CLUSTER, f"{cluster.cluster_id or 'without an id'}, {count} brokers")
    return cluster


def _first_response(admin: AdminClient, limit_ms: int) -> Cluster:
    """Requests the list of the cluster's brokers. Raises KafkaTimeoutError if no broker responds,
    or if the listener seems to require a login.
    """
    deadline_ms, closed = admin.deadline(limit_ms), 0
    while True:
        left_ms = deadline_ms - admin.clock.now_ms()
        try:
            return admin.describe_topics(
                (), timeout_ms=max(0, min(left_ms, _ROUND_MS)), allow_auto_topic_creation=False
            )
        except KafkaTimeoutError:
            closed += _wants_login(admin)
            if closed == _CLOSED or left_ms <= _ROUND_MS:
                what = "nothing is known of the cluster"
                raise admin.loop.metadata.no_broker_answered(limit_ms, what) from None


def _wants_login(admin: AdminClient) -> bool:
    return WANTS_SASL in admin.loop.metadata.addresses_tried()


def _no_login(reached: Reached, protocol: str) -> Step:
    wanted = "SASL_SSL" if protocol.upper() == "SSL" else "SASL_PLAINTEXT"
    return red(
        Stage.SASL,
        f"{reached.remote} answers ApiVersions and closes the connection at the next request, as a "
        f"listener does that requires a login; kafka.security.protocol is {protocol}",
        f"set kafka.security.protocol to {wanted}, and kafka.sasl.*: does it require SASL?",
        Kind.WRONG_LISTENER,
    )


# -- brokers --------------------------------------------------------------------------------------


def brokers(admin: AdminClient, probe: ConnectionProbe, cluster: Cluster, timeout_ms: int) -> Step:
    """Connects to the advertised addresses of up to 12 brokers, as the tasks' producers do. The
    state of the result:

    * OK: every broker can be reached.
    * WARNING: a broker can't be reached because it is dead. A dead broker leaves the cluster's
      metadata during the check.
    * FAILED: a broker can't be reached for another reason, or no broker can be reached.
    """
    limit_ms = min(timeout_ms, _ANSWER_MS)
    nodes = cluster.node_list()[:_MOST_ADDRESSES]
    found = _unreachable(probe, nodes, limit_ms)
    dead: Mapping[Node, Reached] = {}
    if (
        len(found) < len(nodes)
        and found
        and all(one.failed is Stage.TCP or one.timed_out for one in found.values())
    ):
        found, dead = _without_dead(admin, probe, found, timeout_ms)
    if found:
        return _broken(found)
    reached = f"{len(nodes) - len(dead)} of {len(cluster.nodes)} reached"
    return _gone(dead, reached) if dead else ok(BROKERS, reached)


def _gone(dead: Mapping[Node, Reached], reached: str) -> Step:
    """The result for brokers that have stopped since the start of the check."""
    what, change = "has just died", "start it"
    if any(one.timed_out for one in dead.values()):
        what, change = "answers nothing", "see whether its process is stopped, or start it again"
    down = ", ".join(_said(*one) for one in dead.items())
    return yellow(
        BROKERS,
        f"{reached}; {down}; it {what}, and is no longer in the cluster's metadata",
        f"{change}: its partitions have other leaders, or none",
        Kind.NOT_CONNECTED,
    )


def _broken(found: Mapping[Node, Reached]) -> Step:
    """The result for brokers of the cluster that this machine can't reach."""
    (node, first), *_ = found.items()
    change = first.hint or (
        f"is it running? Then its advertised.listeners must name an address that this machine "
        f"reaches ({node.host}:{node.port})"
    )
    if first.timed_out and first.failed is not Stage.TCP:
        change = "see whether its process is stopped or overloaded: rows for its partitions wait"
    said = named([_said(*one) for one in found.items()], _MOST_ADDRESSES)
    return red(BROKERS, said, change, _kind_of(first))


def _said(node: Node, found: Reached) -> str:
    return f"broker {node.id} at {found.remote}: {found.failed}: {found.reason}"


def _unreachable(
    probe: ConnectionProbe, nodes: Sequence[Node], limit_ms: int
) -> Mapping[Node, Reached]:
    found = {node: probe.reach(node.host, node.port, timeout_ms=limit_ms) for node in nodes}
    return {node: one for node, one in found.items() if one.failed is not None}


def _without_dead(
    admin: AdminClient, probe: ConnectionProbe, found: Mapping[Node, Reached], timeout_ms: int
) -> tuple[Mapping[Node, Reached], Mapping[Node, Reached]]:
    """Splits the unreachable brokers ``found`` into two maps: the brokers that are still in the
    cluster's metadata, and the dead brokers, which have left the metadata. A broker that becomes
    reachable during the check is in neither map.

    Requests the metadata again and again until each broker of ``found`` has left it or can be
    reached, but at most for 12 s or ``timeout_ms``. The cluster needs some seconds to notice a dead
    broker. A living broker with a wrong advertised address stays in the metadata.
    """
    deadline_ms, attempts = admin.deadline(min(timeout_ms, _DEATH_MS)), 0
    while True:
        now = {node.id for node in admin.brokers(admin.deadline(timeout_ms), max_age_ms=0)}
        left = [node for node in found if node.id in now]
        if not left or admin.clock.now_ms() >= deadline_ms:
            dead = {node: one for node, one in found.items() if node not in left}
            return {node: found[node] for node in left}, dead
        admin.loop.pause(attempts, deadline_ms)
        dead = {node: one for node, one in found.items() if node not in left}
        found = {**dead, **_unreachable(probe, left, _ANOTHER_MS)}
        attempts += 1
