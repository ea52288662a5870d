"""Everything between us and a write, one step at a time: what ``kprod check`` shows.

Owns: the steps and their order, and what each is worth. Never: a second way to ask: connections are
``network``'s, the topic's rights and settings ``topic_checks``' (as in the preflight), the rights
of exactly-once ``transactions``' (as in planning). It changes nothing: no topic is created, and the
one transactional id that is initialised is nobody's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.topic_checks import (
    LEAST_IN_SYNC,
    check_write,
    topic_rights,
    topic_settings,
    warnings_of,
)
from spark_kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    KafkaError,
    KafkaTimeoutError,
)
from spark_kafka_sink.network.client.connection_probe import ConnectionProbe, Reached, Stage
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.transactions.decision_log import DecisionLog
from spark_kafka_sink.transactions.exactly_once import check_rights
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX

#: Brokers of a large cluster that are connected to: behind one firewall a few tell of all.
_MOST_BROKERS: Final = 12
#: A broker that accepts and says nothing for so long is no broker.
_ANSWER_MS: Final = 5_000
#: A topic that brokers call unknown for so long is not there.
_BELIEVE_MISSING_MS: Final = 1_000

_OPTION_OF_STAGE: Final = {
    Stage.NAME: "kafka.bootstrap.servers",
    Stage.TCP: "kafka.bootstrap.servers",
    Stage.TLS: "kafka.security.protocol and kafka.ssl.*",
    Stage.SASL: "kafka.sasl.*",
}


class State(StrEnum):
    """What a step came to."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One row: ``said`` is what was found, or why it was not looked for; ``change`` what to do, and
    ``code`` the error's (``KP0301``), of what is not well.
    """

    name: str
    state: State
    said: str
    change: str | None = None
    code: str | None = None


_API, _CLUSTER, _BROKERS = "ApiVersions", "cluster", "brokers"
_TOPIC, _PARTITIONS, _REPLICAS, _RIGHTS = "topic", "partitions", "replicas", "rights"
_SIZE, _COMPRESSION, _CLOCK = "max.message.bytes", "compression", "clock"
_IDS, _COORDINATOR, _TIMEOUT, _LOG = (
    *("transactional ids", "coordinator", "transaction timeout"),
    "commit log",
)
_OF_CONNECTION: Final = tuple(map(str, Stage))
_OF_TOPIC: Final = (_TOPIC, _PARTITIONS, _REPLICAS, _RIGHTS, _SIZE, _COMPRESSION)
_OF_TRANSACTIONS: Final = (_IDS, _COORDINATOR, _TIMEOUT, _LOG)
#: Every step, in its order.
STEPS: Final = (*_OF_CONNECTION, _API, _CLUSTER, _BROKERS, *_OF_TOPIC, _CLOCK, *_OF_TRANSACTIONS)


def check_cluster(config: SinkConfig, *, timeout_ms: int) -> Iterator[Step]:
    """Each of :data:`STEPS`, as it is done; ``timeout_ms`` bounds each question.

    Raises ConfigError for settings that can't be used at all (a store that is not there, ...).
    """
    left = list(STEPS)
    for step in _steps(config, timeout_ms):
        while left[0] != step.name:
            yield _not_reached(left.pop(0))
        left.pop(0)
        yield step
    yield from map(_not_reached, left)


def _steps(config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    """Those that could be done."""
    producer = config.producer
    with ConnectionProbe(producer) as probe:
        reached = _first(probe, producer, timeout_ms)
        rows = list(_connection(reached, probe, producer))
        if reached.failed is not None:
            yield from rows
            return
        with AdminClient(producer) as admin:
            # A client's certificate is refused behind the handshake (TLS 1.3), by the first answer.
            try:
                cluster = admin.describe_topics(
                    (),
                    timeout_ms=min(timeout_ms, _ANSWER_MS),
                    allow_auto_topic_creation=False,
                )
            except AuthenticationError as error:
                last = str(probe.stages[-1]) if probe.stages else _API
                yield from (_failed(last, error) if r.name == last else r for r in rows)
                if last == _API:
                    yield _failed(_API, error)
                return
            except KafkaError as error:
                yield from (*rows, _failed(_API, error))
                return
            yield from (*rows, Step(_API, State.OK, f"{reached.remote} speaks Kafka"))
            yield _cluster(cluster)
            brokers = _brokers(probe, cluster, timeout_ms)
            yield brokers
            if brokers.state is State.FAILED:
                return
            yield from _topic(admin, config, timeout_ms)
            yield Step(_CLOCK, State.SKIPPED, "brokers have no answer that tells their time")
    yield from _transactions(config, timeout_ms)


# -- connection -----------------------------------------------------------------------------------


def _first(probe: ConnectionProbe, producer: ProducerConfig, timeout_ms: int) -> Reached:
    """The bootstrap server that gets furthest; one that works is enough."""
    best: Reached | None = None
    for host, port in producer.bootstrap_servers:
        found = probe.reach(host, port, timeout_ms=min(timeout_ms, _ANSWER_MS))
        if best is None or found.failed is None or len(found.done) > len(best.done):
            best = found
        if found.failed is None:
            break
    assert best is not None
    return best


def _connection(
    reached: Reached, probe: ConnectionProbe, producer: ProducerConfig
) -> Iterator[Step]:
    protocol = producer.security_protocol
    for stage in Stage:
        if stage in (Stage.TLS, Stage.SASL) and stage not in probe.stages:
            yield Step(stage, State.SKIPPED, f"kafka.security.protocol is {protocol}")
        elif stage is reached.failed:
            change = reached.hint or f"look at {_OPTION_OF_STAGE[stage]}"
            yield Step(stage, State.FAILED, f"{reached.remote}: {reached.reason}", change)
            return
        else:
            yield Step(stage, State.OK, reached.remote)


def _cluster(cluster: Cluster) -> Step:
    count = len(cluster.nodes)
    return Step(_CLUSTER, State.OK, f"{cluster.cluster_id or 'without an id'}, {count} brokers")


def _brokers(probe: ConnectionProbe, cluster: Cluster, timeout_ms: int) -> Step:
    """Their advertised addresses, as the producers of the tasks connect to them."""
    nodes = cluster.node_list()[:_MOST_BROKERS]
    for node in nodes:
        found = probe.reach(node.host, node.port, timeout_ms=min(timeout_ms, _ANSWER_MS))
        if found.failed is not None:
            return Step(
                _BROKERS,
                State.FAILED,
                f"broker {node.id} at {found.remote}: {found.failed}: {found.reason}",
                found.hint
                or f"its advertised.listeners must name an address that this machine reaches"
                f" ({node.host}:{node.port})",
            )
    return Step(_BROKERS, State.OK, f"{len(nodes)} of {len(cluster.nodes)} reached")


# -- topic ----------------------------------------------------------------------------------------


def _topic(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    topic = config.topic
    if topic is None:
        reason = "no topic: the rows name theirs, or --topic was not given"
        yield from (Step(name, State.SKIPPED, reason) for name in _OF_TOPIC)
        return
    try:
        cluster = admin.describe_topics(
            (topic,),
            timeout_ms=timeout_ms,
            missing_topic_timeout_ms=_BELIEVE_MISSING_MS,
            allow_auto_topic_creation=False,
        )
    except KafkaError as error:
        yield _failed(_TOPIC, error)
        return
    yield Step(_TOPIC, State.OK, topic)
    yield _partitions(cluster, topic)
    yield from _asked(_REPLICAS, lambda: _replicas(admin, config, cluster, topic, timeout_ms))
    yield from _asked(_RIGHTS, lambda: _rights(admin, topic, timeout_ms))
    yield from _sizes(admin, config, topic, timeout_ms)


def _partitions(cluster: Cluster, topic: str) -> Step:
    partitions = cluster.topics[topic]
    without = [p.tp.partition for p in partitions if p.leader not in cluster.nodes]
    if without:
        shown = ", ".join(map(str, without[:_MOST_BROKERS]))
        return Step(
            _PARTITIONS,
            State.FAILED,
            f"{len(without)} of {len(partitions)} have no leader: {shown}",
            "their brokers are down; rows for them wait",
        )
    return Step(_PARTITIONS, State.OK, f"{len(partitions)}, each with a leader")


def _replicas(
    admin: AdminClient, config: SinkConfig, cluster: Cluster, topic: str, timeout_ms: int
) -> Step:
    """Those that are up: brokers that lag are in no answer that is read here."""
    told = topic_settings(admin, (topic,), timeout_ms).get(topic, {}).get(LEAST_IN_SYNC) or ""
    if not told.isdecimal():
        return Step(_REPLICAS, State.SKIPPED, "the principal may not see the topic's settings")
    least = int(told)
    up = min(len(set(p.replicas) - set(p.offline)) for p in cluster.topics[topic])
    said = f"{up} up at least, {LEAST_IN_SYNC}={least}"
    if up >= least:
        return Step(_REPLICAS, State.OK, said)
    if config.producer.acks != -1:
        return Step(_REPLICAS, State.WARNING, said, "only kafka.acks other than all gets through")
    return Step(
        _REPLICAS,
        State.FAILED,
        f"{said}: every write is refused",
        f"start the brokers that are down, or give the topic as many replicas as {LEAST_IN_SYNC}",
    )


def _rights(admin: AdminClient, topic: str, timeout_ms: int) -> Step:
    operations = topic_rights(admin, (topic,), timeout_ms).get(topic)
    if operations is None:
        return Step(_RIGHTS, State.SKIPPED, "these brokers don't tell what a principal may do")
    check_write(topic, operations)
    return Step(_RIGHTS, State.OK, "DESCRIBE and WRITE")


def _sizes(admin: AdminClient, config: SinkConfig, topic: str, timeout_ms: int) -> Iterator[Step]:
    """A topic's limits: what the preflight warns of fails here when a row may not get through."""
    try:
        settings = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    except KafkaError as error:
        yield from (_unanswered(name, error) for name in (_SIZE, _COMPRESSION))
        return
    if not settings:
        reason = "the principal may not see the topic's settings (DESCRIBE_CONFIGS)"
        yield from (Step(name, State.SKIPPED, reason) for name in (_SIZE, _COMPRESSION))
        return
    found = list(warnings_of(config.producer, topic, settings))
    for name, key in ((_SIZE, "max.message.bytes"), (_COMPRESSION, "compression.type")):
        # The last one weighs most: a row that fails, and not a batch that is split.
        of_it = [e for e in found if f" {key}=" in e.message or f"({key})" in e.message]
        if not of_it:
            yield Step(name, State.OK, settings.get(key) or "")
        else:
            fails = "kafka.max.request.size" in of_it[-1].message
            state = State.FAILED if fails else State.WARNING
            yield replace(_failed(name, of_it[-1]), state=state)


# -- transactions ---------------------------------------------------------------------------------


def _transactions(config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    if not config.is_exactly_once:
        reason = f"deliveryGuarantee is {config.delivery_guarantee}"
        yield from (Step(name, State.SKIPPED, reason) for name in _OF_TRANSACTIONS)
        return
    prefix = config.transactional_id_prefix or DEFAULT_PREFIX
    producer = config.producer
    with TransactionClient(producer) as client:
        now = client.clock.now_ms
        try:
            check_rights(client, prefix, producer.transaction_timeout_ms, now() + timeout_ms)
        except AuthorizationError as error:
            yield _failed(_IDS, error)
        except ConfigError as error:
            yield Step(_IDS, State.OK, f"{prefix}~...: WRITE and DESCRIBE")
            yield Step(_COORDINATOR, State.OK, "answers")
            yield _failed(_TIMEOUT, error)
        except KafkaError as error:
            yield Step(_IDS, State.SKIPPED, "their coordinator gave no answer")
            yield _failed(_COORDINATOR, error)
        else:
            yield Step(_IDS, State.OK, f"{prefix}~...: WRITE and DESCRIBE")
            yield Step(_COORDINATOR, State.OK, "answers")
            yield Step(_TIMEOUT, State.OK, f"{producer.transaction_timeout_ms} ms")
        topic = config.commit_log_topic
        yield from _asked(_LOG, lambda: _log(client, topic, prefix, now() + timeout_ms, timeout_ms))


def _log(
    client: TransactionClient, topic: str, prefix: str, deadline_ms: int, timeout_ms: int
) -> Step:
    keys = DecisionLog(client, topic).states(prefix, deadline_ms)
    if keys is None:
        return Step(_LOG, State.SKIPPED, f"{topic} is not there yet: the first write creates it")
    check_write(topic, topic_rights(client, (topic,), timeout_ms).get(topic))
    return Step(_LOG, State.OK, f"{topic}: {len(keys)} keys of '{prefix}'")


# -- rows -----------------------------------------------------------------------------------------


def _asked(name: str, ask: Callable[[], Step]) -> Iterator[Step]:
    try:
        yield ask()
    except KafkaTimeoutError as error:
        yield _unanswered(name, error)
    except KafkaError as error:
        yield _failed(name, error)


def _not_reached(name: str) -> Step:
    return Step(name, State.SKIPPED, "a step before it failed")


def _failed(name: str, error: KafkaError) -> Step:
    return Step(name, State.FAILED, error.message, error.hint, error.kind.kp_code)


def _unanswered(name: str, error: KafkaError) -> Step:
    return Step(name, State.SKIPPED, f"no answer: {error.message}")
