"""Checks every condition of a write, step by step: what ``kprod check`` shows.

Owns: the steps, their order, and the state of each. Never: the requests: connections are
``network``'s, the topic's rights and configs ``topic_checks``' (as in the preflight), the rights
of exactly-once ``transactions``' (as in planning). It changes nothing: no topic is created, and the
only transactional id that it initializes is not used for writing.

:func:`check_cluster` is for one machine; :func:`check_host` leaves out the steps whose result does
not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
    named,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import (
    State,
    Step,
    failed,
    no_response,
    not_reached,
    step_of,
    warned,
)
from spark_kafka_sink.datasource.checks.dead_letter_checks import queue_check
from spark_kafka_sink.datasource.checks.topic_checks import (
    COMPRESSION,
    LEAST_IN_SYNC,
    check_write,
    clock_warning,
    topic_rights,
    topic_settings,
    topics_in_full,
    warnings_of,
)
from spark_kafka_sink.datasource.schemas.payload_schemas import described
from spark_kafka_sink.network.client.connection_probe import ConnectionProbe, Reached, Stage
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.metadata_response import TopicMetadata
from spark_kafka_sink.records.bad_rows.topic_limits import LARGEST
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.exactly_once import check_rights
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX

#: Brokers of a large cluster that are connected to: a few show what a firewall does to all.
_MOST_BROKERS: Final = 12
#: How long a listener that accepts a connection may take to respond, in ms.
_ANSWER_MS: Final = 5_000
#: How long brokers must report a topic as unknown before it counts as missing, in ms.
_MISSING_TOPIC_TIMEOUT_MS: Final = 1_000

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
_LETTERS: Final = "dead letter queue"
_REGISTRY: Final = "schema registry"
_OF_TRANSACTIONS: Final = (_IDS, _COORDINATOR, _TIMEOUT, _LOG)
#: Every step, in order.
STEPS: Final = (
    *(*_OF_CONNECTION, _API, _CLUSTER, _BROKERS, *_OF_TOPIC, _CLOCK),
    *(_LETTERS, _REGISTRY, *_OF_TRANSACTIONS),
)
#: The steps whose result may differ between machines.
HOST_STEPS: Final = (*_OF_CONNECTION, _API, _CLUSTER, _BROKERS, _CLOCK)

#: Partitions that a row lists.
_MOST_NAMED: Final = 12

#: A topic's configs by name; None when the request failed, empty without the right to it.
_Settings = Mapping[str, str | None] | None


def check_cluster(
    config: SinkConfig, *, timeout_ms: int, clock: Clock | None = None
) -> Iterator[Step]:
    """Yields each of :data:`STEPS` when it is done; ``timeout_ms`` bounds each request.

    Raises ConfigError for invalid settings (a store that does not exist, ...).
    """
    return _all_of(STEPS, _steps(config, timeout_ms, clock))


def check_host(
    config: SinkConfig, *, timeout_ms: int, clock: Clock | None = None
) -> Iterator[Step]:
    """Yields each of :data:`HOST_STEPS`, as :func:`check_cluster`."""
    return _all_of(HOST_STEPS, _steps(config, timeout_ms, clock, host_only=True))


def _all_of(names: Iterable[str], found: Iterator[Step]) -> Iterator[Step]:
    """``found``, with the steps that were not reached in their places."""
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
    """The steps that were reached."""
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
            yield from step_of(_CLOCK, lambda: _clock(admin, config, settings or {}, timeout_ms))
            if not host_only:
                yield from step_of(_LETTERS, lambda: _letters(admin, config, timeout_ms))
    if not host_only:
        yield from step_of(_REGISTRY, lambda: _registry(config, timeout_ms))
        yield from _transactions(config, timeout_ms)


def _letters(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Step:
    if config.dead_letters is None:
        return Step(_LETTERS, State.SKIPPED, "errors.tolerance is none")
    return Step(_LETTERS, State.OK, queue_check(admin, config.dead_letters, timeout_ms))


def _registry(config: SinkConfig, timeout_ms: int) -> Step:
    """What the registry has for keys and values; only the driver asks it."""
    if config.schemas is None:
        return Step(_REGISTRY, State.SKIPPED, "no format has a schema")
    found = list(described(config, timeout_ms))
    said = "; ".join(f"{part}: {what}" for part, what, _ in found)
    if all(enough for _, _, enough in found):
        return Step(_REGISTRY, State.OK, said)
    change = "register the schema there, or set auto.register.schemas=true"
    return Step(_REGISTRY, State.WARNING, said, change)


# -- connection -----------------------------------------------------------------------------------


def _first(probe: ConnectionProbe, producer: ProducerConfig, timeout_ms: int) -> Reached:
    """The bootstrap server that gets furthest; one reachable server is enough."""
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
            change = reached.hint or f"check {_OPTION_OF_STAGE[stage]}"
            yield Step(stage, State.FAILED, f"{reached.remote}: {reached.reason}", change)
            return
        else:
            yield Step(stage, State.OK, reached.remote)


def _answered(
    admin: AdminClient, probe: ConnectionProbe, reached: Reached, rows: list[Step], timeout_ms: int
) -> Generator[Step, None, Cluster | None]:
    """The rows of the connection; returns None when no broker responds.

    A rejected client certificate is reported here: with TLS 1.3 the rejection arrives after the
    handshake, instead of the first response.
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
    """Connects to the advertised addresses, as the tasks' producers do."""
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
    """The topic's rows; returns its configs."""
    topic = config.topic
    if topic is None:
        reason = "no topic: it is a column of the rows, or --topic was not given"
        yield from (Step(name, State.SKIPPED, reason) for name in _OF_TOPIC)
        return None
    try:
        cluster = admin.describe_topics(
            (topic,),
            timeout_ms=timeout_ms,
            missing_topic_timeout_ms=_MISSING_TOPIC_TIMEOUT_MS,
            allow_auto_topic_creation=False,
        )
    except KafkaError as error:
        yield failed(_TOPIC, error)
        return None
    yield Step(_TOPIC, State.OK, topic)
    yield _partitions(cluster, topic)
    found, unknown = _settings(admin, topic, timeout_ms)
    try:
        described = topics_in_full(admin, (topic,), timeout_ms)[topic]
    except KafkaError as error:
        yield from (no_response(name, error) for name in (_REPLICAS, _RIGHTS))
    else:
        yield unknown(_REPLICAS) if not found else _replicas(config, described, found)
        yield from step_of(_RIGHTS, lambda: _rights(described))
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
    """The configs of a topic, and a row for the skipped steps when there are none."""
    try:
        found = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    except KafkaError as error:
        failure = error
        return None, lambda name: no_response(name, failure)
    reason = "the principal may not see the topic's settings (DESCRIBE_CONFIGS)"
    return found, lambda name: Step(name, State.SKIPPED, reason)


def _settings_if_there(admin: AdminClient, topic: str | None, timeout_ms: int) -> _Settings:
    """The configs for the clock's row: a topic bounds timestamps. Does not wait for a missing
    topic, which is a row of the driver: one machine that waits is enough.
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


def _replicas(config: SinkConfig, topic: TopicMetadata, settings: Mapping[str, str | None]) -> Step:
    """The in-sync replicas: with fewer than min.insync.replicas, acks=all fails
    (NOT_ENOUGH_REPLICAS).
    """
    least = int(settings.get(LEAST_IN_SYNC) or 1)
    below = [(p, count) for p, count in enumerate(topic.in_sync) if count < least]
    if not below:
        fewest = min(topic.in_sync, default=0)
        return Step(_REPLICAS, State.OK, f"{fewest} in sync at least, {LEAST_IN_SYNC}={least}")
    said = (
        f"{len(below)} of {len(topic.in_sync)} partitions have fewer replicas in sync than "
        f"{LEAST_IN_SYNC}={least}: {named([f'{p} ({count})' for p, count in below], _MOST_NAMED)}"
    )
    if config.producer.acks != -1:
        return Step(
            _REPLICAS, State.WARNING, said, "only writes with kafka.acks other than all succeed"
        )
    return Step(
        _REPLICAS,
        State.FAILED,
        f"{said}; every write to them is rejected",
        f"start the brokers that are down, or give the topic as many replicas as {LEAST_IN_SYNC}",
    )


def _rights(topic: TopicMetadata) -> Step:
    if topic.authorized_operations is None:
        return Step(_RIGHTS, State.SKIPPED, "these brokers don't report the rights of a principal")
    check_write(topic.name, topic.authorized_operations)
    return Step(_RIGHTS, State.OK, "DESCRIBE and WRITE")


def _clock(
    admin: AdminClient, config: SinkConfig, settings: Mapping[str, str | None], timeout_ms: int
) -> Step:
    """This machine's clock against the active controller's, the only one that can be read."""
    try:
        found = admin.clock_difference(admin.deadline(timeout_ms))
    except AuthorizationError:
        reason = "reading a broker's time needs DESCRIBE on the cluster"
        return Step(_CLOCK, State.SKIPPED, reason)
    except UnsupportedVersionError:
        found = None
    if found is None:
        return Step(_CLOCK, State.SKIPPED, "brokers before 3.3, or with ZooKeeper, don't report it")
    warning = clock_warning(config.topic, settings, found)
    if warning is not None:
        return warned(_CLOCK, warning)
    said = f"{found.ahead_ms:+d} ms versus broker {found.controller}'s, +-{found.error_ms} ms"
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
            yield Step(_IDS, State.SKIPPED, "their coordinator did not respond")
            yield failed(_COORDINATOR, error)
        else:
            yield Step(_IDS, State.OK, f"{prefix}~...: WRITE and DESCRIBE")
            yield Step(_COORDINATOR, State.OK, "answers")
            yield Step(_TIMEOUT, State.OK, f"{limit_ms} ms")
        topic = config.commit_log_topic
        yield from step_of(_LOG, lambda: _log(client, topic, prefix, timeout_ms))


def _log(client: TransactionClient, topic: str, prefix: str, timeout_ms: int) -> Step:
    keys = CommitLog(client, topic).states(prefix, client.deadline(timeout_ms))
    if keys is None:
        return Step(_LOG, State.SKIPPED, f"{topic} does not exist yet: the first write creates it")
    check_write(topic, topic_rights(client, (topic,), timeout_ms).get(topic))
    return Step(_LOG, State.OK, f"{topic}: {len(keys)} keys of '{prefix}'")
