"""Everything between us and a write, one step at a time: what ``kprod check`` shows.

Owns: the steps and their order, and what each is worth. Never: a second way to ask: connections are
``network``'s, the topic's rights and settings ``topic_checks``' (as in the preflight), the rights
of exactly-once ``transactions``' (as in planning). It changes nothing: no topic is created, and the
one transactional id that is initialised is nobody's.

:func:`check_cluster` is for one machine; :func:`check_host` leaves out what is the cluster's and
the same wherever it is asked from.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.check_steps import (
    State,
    Step,
    asked,
    failed,
    not_reached,
    unanswered,
    warned,
)
from spark_kafka_sink.datasource.topic_checks import (
    COMPRESSION,
    LARGEST,
    LEAST_IN_SYNC,
    check_write,
    clock_warning,
    topic_rights,
    topic_settings,
    topics_in_full,
    warnings_of,
)
from spark_kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
    named,
)
from spark_kafka_sink.network.client.connection_probe import ConnectionProbe, Reached, Stage
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.metadata_response import TopicMetadata
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
#: Those that may differ from machine to machine.
HOST_STEPS: Final = (*_OF_CONNECTION, _API, _CLUSTER, _BROKERS, _CLOCK)

#: Partitions that a row names.
_MOST_NAMED: Final = 12

#: A topic's settings by name; None when they could not be asked for, empty when they may not.
_Settings = Mapping[str, str | None] | None


def check_cluster(
    config: SinkConfig, *, timeout_ms: int, clock: Clock | None = None
) -> Iterator[Step]:
    """Each of :data:`STEPS`, as it is done; ``timeout_ms`` bounds each question.

    Raises ConfigError for settings that can't be used at all (a store that is not there, ...).
    """
    return _all_of(STEPS, _steps(config, timeout_ms, clock))


def check_host(
    config: SinkConfig, *, timeout_ms: int, clock: Clock | None = None
) -> Iterator[Step]:
    """Each of :data:`HOST_STEPS`, as :func:`check_cluster`."""
    return _all_of(HOST_STEPS, _steps(config, timeout_ms, clock, host_only=True))


def _all_of(names: Iterable[str], found: Iterator[Step]) -> Iterator[Step]:
    """``found``, and in their places those that were not reached."""
    left = list(names)
    for step in found:
        while left[0] != step.name:
            yield not_reached(left.pop(0))
        left.pop(0)
        yield step
    yield from map(not_reached, left)


def _steps(
    config: SinkConfig, timeout_ms: int, clock: Clock | None, *, host_only: bool = False
) -> Iterator[Step]:
    """Those that could be done."""
    producer = config.producer
    with ConnectionProbe(producer) as probe:
        reached = _first(probe, producer, timeout_ms)
        rows = list(_connection(reached, probe, producer))
        if reached.failed is not None:
            yield from rows
            return
        with AdminClient(producer, clock=clock) as admin:
            cluster = yield from _answered(admin, probe, reached, rows, timeout_ms)
            if cluster is None:
                return
            brokers = _brokers(probe, cluster, timeout_ms)
            yield brokers
            if brokers.state is State.FAILED:
                return
            if host_only:
                settings = _settings_if_there(admin, config.topic, timeout_ms)
            else:
                settings = yield from _topic(admin, config, timeout_ms)
            yield from asked(_CLOCK, lambda: _clock(admin, config, settings or {}, timeout_ms))
    if not host_only:
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


def _answered(
    admin: AdminClient, probe: ConnectionProbe, reached: Reached, rows: list[Step], timeout_ms: int
) -> Generator[Step, None, Cluster | None]:
    """The rows of the connection, and whether a broker answers there: None if not.

    Whether a client's certificate is taken shows here: with TLS 1.3 its refusal comes behind the
    handshake, with the first answer.
    """
    try:
        cluster = admin.describe_topics(
            (), timeout_ms=min(timeout_ms, _ANSWER_MS), allow_auto_topic_creation=False
        )
    except AuthenticationError as error:
        last = str(probe.stages[-1]) if probe.stages else _API
        yield from (failed(last, error) if row.name == last else row for row in rows)
        if last == _API:
            yield failed(_API, error)
        return None
    except KafkaError as error:
        yield from (*rows, failed(_API, error))
        return None
    yield from (*rows, Step(_API, State.OK, f"{reached.remote} speaks Kafka"))
    count = len(cluster.nodes)
    yield Step(_CLUSTER, State.OK, f"{cluster.cluster_id or 'without an id'}, {count} brokers")
    return cluster


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


def _topic(
    admin: AdminClient, config: SinkConfig, timeout_ms: int
) -> Generator[Step, None, _Settings]:
    """Its rows; what comes of it are its settings."""
    topic = config.topic
    if topic is None:
        reason = "no topic: the rows name theirs, or --topic was not given"
        yield from (Step(name, State.SKIPPED, reason) for name in _OF_TOPIC)
        return None
    try:
        cluster = admin.describe_topics(
            (topic,),
            timeout_ms=timeout_ms,
            missing_topic_timeout_ms=_BELIEVE_MISSING_MS,
            allow_auto_topic_creation=False,
        )
    except KafkaError as error:
        yield failed(_TOPIC, error)
        return None
    yield Step(_TOPIC, State.OK, topic)
    yield _partitions(cluster, topic)
    found, unknown = _settings(admin, topic, timeout_ms)
    try:
        told = topics_in_full(admin, (topic,), timeout_ms)[topic]
    except KafkaError as error:
        yield from (unanswered(name, error) for name in (_REPLICAS, _RIGHTS))
    else:
        yield unknown(_REPLICAS) if not found else _replicas(config, told, found)
        yield from asked(_RIGHTS, lambda: _rights(told))
    if not found:
        yield from map(unknown, (_SIZE, _COMPRESSION))
        return found
    warnings = list(warnings_of(config.producer, topic, found))
    for name, setting in ((_SIZE, LARGEST), (_COMPRESSION, COMPRESSION)):
        of_it = [one for one in warnings if one.setting == setting]
        yield warned(name, of_it[0]) if of_it else Step(name, State.OK, found.get(setting) or "")
    return found


def _settings(
    admin: AdminClient, topic: str, timeout_ms: int
) -> tuple[_Settings, Callable[[str], Step]]:
    """Those of a topic, and the row of whatever needs them when there are none."""
    try:
        found = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    except KafkaError as error:
        failure = error
        return None, lambda name: unanswered(name, failure)
    reason = "the principal may not see the topic's settings (DESCRIBE_CONFIGS)"
    return found, lambda name: Step(name, State.SKIPPED, reason)


def _settings_if_there(admin: AdminClient, topic: str | None, timeout_ms: int) -> _Settings:
    """For the clock's row: a topic bounds timestamps. A topic that is not there is not waited for:
    that row is the driver's, and one machine that waits is enough.
    """
    if topic is None:
        return None
    try:
        if topics_in_full(admin, (topic,), timeout_ms)[topic].error is not ErrorCode.NONE:
            return None
    except KafkaError:
        return None
    return _settings(admin, topic, timeout_ms)[0]


def _partitions(cluster: Cluster, topic: str) -> Step:
    partitions = cluster.topics[topic]
    without = [p.tp.partition for p in partitions if p.leader not in cluster.nodes]
    if without:
        return Step(
            _PARTITIONS,
            State.FAILED,
            f"{len(without)} of {len(partitions)} have no leader: {named(without, _MOST_NAMED)}",
            "their brokers are down; rows for them wait",
        )
    return Step(_PARTITIONS, State.OK, f"{len(partitions)}, each with a leader")


def _replicas(config: SinkConfig, told: TopicMetadata, settings: Mapping[str, str | None]) -> Step:
    """Those in sync: with fewer than the topic wants, acks=all is refused (NOT_ENOUGH_REPLICAS)."""
    least = int(settings.get(LEAST_IN_SYNC) or 1)
    below = [(p, count) for p, count in enumerate(told.in_sync) if count < least]
    if not below:
        fewest = min(told.in_sync, default=0)
        return Step(_REPLICAS, State.OK, f"{fewest} in sync at least, {LEAST_IN_SYNC}={least}")
    said = (
        f"{len(below)} of {len(told.in_sync)} partitions have fewer replicas in sync than "
        f"{LEAST_IN_SYNC}={least}: {named([f'{p} ({count})' for p, count in below], _MOST_NAMED)}"
    )
    if config.producer.acks != -1:
        return Step(_REPLICAS, State.WARNING, said, "only kafka.acks other than all gets through")
    return Step(
        _REPLICAS,
        State.FAILED,
        f"{said}; every write to them is refused",
        f"start the brokers that are down, or give the topic as many replicas as {LEAST_IN_SYNC}",
    )


def _rights(told: TopicMetadata) -> Step:
    if told.authorized_operations is None:
        return Step(_RIGHTS, State.SKIPPED, "these brokers don't tell what a principal may do")
    check_write(told.name, told.authorized_operations)
    return Step(_RIGHTS, State.OK, "DESCRIBE and WRITE")


def _clock(
    admin: AdminClient, config: SinkConfig, settings: Mapping[str, str | None], timeout_ms: int
) -> Step:
    """This machine's and the active controller's: the one clock of a cluster that can be read."""
    try:
        found = admin.clock_difference(admin.deadline(timeout_ms))
    except AuthorizationError:
        reason = "only who may DESCRIBE the cluster is told a broker's time"
        return Step(_CLOCK, State.SKIPPED, reason)
    except UnsupportedVersionError:
        found = None
    if found is None:
        return Step(_CLOCK, State.SKIPPED, "brokers before 3.3, or with ZooKeeper, tell no time")
    warning = clock_warning(config.topic, settings, found)
    if warning is not None:
        return warned(_CLOCK, warning)
    said = f"{found.ahead_ms:+d} ms beside broker {found.controller}'s, +-{found.error_ms} ms"
    return Step(_CLOCK, State.OK, said)


# -- transactions ---------------------------------------------------------------------------------


def _transactions(config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    if not config.is_exactly_once:
        reason = f"deliveryGuarantee is {config.delivery_guarantee}"
        yield from (Step(name, State.SKIPPED, reason) for name in _OF_TRANSACTIONS)
        return
    prefix = config.transactional_id_prefix or DEFAULT_PREFIX
    producer = config.producer
    with TransactionClient(producer) as client:
        limit_ms = producer.transaction_timeout_ms
        try:
            check_rights(client, prefix, limit_ms, client.deadline(timeout_ms))
        except AuthorizationError as error:
            yield failed(_IDS, error)
        except ConfigError as error:
            yield Step(_IDS, State.OK, f"{prefix}~...: WRITE and DESCRIBE")
            yield Step(_COORDINATOR, State.OK, "answers")
            yield failed(_TIMEOUT, error)
        except KafkaError as error:
            yield Step(_IDS, State.SKIPPED, "their coordinator gave no answer")
            yield failed(_COORDINATOR, error)
        else:
            yield Step(_IDS, State.OK, f"{prefix}~...: WRITE and DESCRIBE")
            yield Step(_COORDINATOR, State.OK, "answers")
            yield Step(_TIMEOUT, State.OK, f"{limit_ms} ms")
        topic = config.commit_log_topic
        yield from asked(_LOG, lambda: _log(client, topic, prefix, timeout_ms))


def _log(client: TransactionClient, topic: str, prefix: str, timeout_ms: int) -> Step:
    keys = DecisionLog(client, topic).states(prefix, client.deadline(timeout_ms))
    if keys is None:
        return Step(_LOG, State.SKIPPED, f"{topic} is not there yet: the first write creates it")
    check_write(topic, topic_rights(client, (topic,), timeout_ms).get(topic))
    return Step(_LOG, State.OK, f"{topic}: {len(keys)} keys of '{prefix}'")
