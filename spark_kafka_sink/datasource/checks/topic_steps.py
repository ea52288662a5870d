"""The steps of ``kprod check`` for the topic, and for the topics of reports and of progress.

They show the effect of partitions, replicas, rights and configs on a write.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import Call
from spark_kafka_sink.admin.existing_topic import existing
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
    named,
)
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import (
    Step,
    failed,
    no_response,
    ok,
    red,
    skipped,
    step_of,
    warned,
    yellow,
)
from spark_kafka_sink.datasource.checks.replicas import (
    MOST_NAMED,
    below_minimum,
    down,
    in_sync_of,
    least_of,
)
from spark_kafka_sink.datasource.checks.topic_checks import (
    COMPRESSION,
    LEAST_IN_SYNC,
    check_write,
    report_warnings,
    topic_settings,
    topics_in_full,
    warnings_of,
)
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.metadata import TopicMetadata
from spark_kafka_sink.protocol.topic_requests import (
    ConfigResourceType,
    config_values,
    describe_configs,
)
from spark_kafka_sink.records.bad_rows.topic_limits import CLEANUP, COMPACT, LARGEST

_TOPIC, _PARTITIONS, _REPLICAS, _RIGHTS = "topic", "partitions", "replicas", "rights"
_COMPRESSION, _REPORT_TOPIC, _PROGRESS_TOPIC = "compression", "reportTopic", "progressTopic"
_OF_CONFIGS: Final = (LARGEST, _COMPRESSION, CLEANUP)
#: The steps of this module, in order.
OF_TOPIC: Final = (_TOPIC, _PARTITIONS, _REPLICAS, _RIGHTS, *_OF_CONFIGS)
OF_REPORTS: Final = (_REPORT_TOPIC, _PROGRESS_TOPIC)

_AUTO_CREATE: Final = "auto.create.topics.enable"

#: A topic's configs by name. None if the request failed. Empty if the principal may not read them.
Settings = Mapping[str, str | None] | None


def topic_steps(
    admin: AdminClient, config: SinkConfig, timeout_ms: int
) -> Generator[Step, None, Settings]:
    """Yields the results of the steps for the option ``topic``. Returns the topic's configs, or
    None if they are unknown.
    """
    topic = config.topic
    if topic is None:
        reason = "no topic: it is a column of the rows, or --topic was not given"
        yield from (skipped(name, reason) for name in OF_TOPIC)
        return None
    try:
        cluster = existing(admin, topic, timeout_ms)
    except KafkaError as error:
        yield _absent(admin, _TOPIC, topic, error, timeout_ms)
        return None
    yield ok(_TOPIC, topic)
    yield _partitions(cluster, topic)
    found, unknown = _settings(admin, topic, timeout_ms)
    try:
        described = topics_in_full(admin, (topic,), timeout_ms)[topic]
    except KafkaError as error:
        yield from (no_response(name, error) for name in (_REPLICAS, _RIGHTS))
    else:
        yield _replicas(admin, config, described, found or {}, unknown(_REPLICAS))
        yield from step_of(_RIGHTS, lambda: _rights(described))
    if found:
        yield from _of_configs(config, topic, found)
    else:
        yield from map(unknown, _OF_CONFIGS)
    return found


def report_topic_step(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    """Checks the topic of the option ``reportTopic``. If that topic is missing, a write is
    refused.
    """
    topic = config.report_topic
    if topic is None:
        return iter((skipped(_REPORT_TOPIC, "no report is written to a topic"),))
    return step_of(_REPORT_TOPIC, lambda: _report_topic(admin, config, topic, timeout_ms))


def progress_topic_step(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Step:
    """Checks that the topic of the option ``progressTopic`` exists, and that the principal may
    write to it. If the check fails, the state of the result is only WARNING: rows are written, but
    their progress is not shown.
    """
    topic = config.progress_topic
    if topic is None:
        return skipped(_PROGRESS_TOPIC, "no task sends its progress")
    try:
        existing(admin, topic, timeout_ms)
        found = topics_in_full(admin, (topic,), timeout_ms)[topic]
        check_write(topic, found.authorized_operations)
    except KafkaError as error:
        said = f"{error.message}; rows are written nevertheless, but their progress is not shown"
        change = (
            f"create {topic} with one partition, and allow WRITE on it; or unset {_PROGRESS_TOPIC}"
        )
        return yellow(_PROGRESS_TOPIC, said, change, Kind.REPORT_NOT_WRITTEN)
    return ok(_PROGRESS_TOPIC, topic)


def settings_if_there(admin: AdminClient, topic: str | None, timeout_ms: int) -> Settings:
    """The configs of ``topic``. None if ``topic`` is None, if it does not exist, or if its configs
    can't be read. Does not wait for a missing topic.

    The check on an executor compares the executor's clock with the limits for timestamps in these
    configs.
    """
    if topic is None:
        return None
    try:
        if topics_in_full(admin, (topic,), timeout_ms)[topic].error is not ErrorCode.NONE:
            return None
    except KafkaError:
        return None
    return _settings(admin, topic, timeout_ms)[0]


def _absent(admin: AdminClient, name: str, topic: str, error: KafkaError, timeout_ms: int) -> Step:
    """The result for a topic that does not exist. If brokers create topics automatically, the state
    of the result is WARNING. If not, the state is FAILED.
    """
    absent = error.kind is Kind.TOPIC_NOT_PRESENT
    if not absent or _broker_config(admin, _AUTO_CREATE, timeout_ms) != "true":
        return failed(name, error)
    return yellow(
        name,
        f"{topic} does not exist: the first write creates it, with the brokers' num.partitions "
        f"({_AUTO_CREATE}=true)",
        "check its name, or create it with the partitions and replicas that you need",
        error.kind,
    )


def _broker_config(admin: AdminClient, name: str, timeout_ms: int) -> str | None:
    """The value of the broker config ``name``. None if the principal may not read it, or if the
    brokers are too old for the request.
    """
    deadline_ms = admin.deadline(timeout_ms)
    node = admin.brokers(deadline_ms)[0]
    request = describe_configs(ConfigResourceType.BROKER, [str(node.id)], [name])
    try:
        call = Call(request, node, f"DescribeConfigs of broker {node}")
        response = admin.loop.send_and_receive(call, deadline_ms)
    except UnsupportedVersionError:
        return None
    return config_values(response.results[0]).get(name)


def _settings(
    admin: AdminClient, topic: str, timeout_ms: int
) -> tuple[Settings, Callable[[str], Step]]:
    """Reads the configs of a topic. Returns two items:

    * the configs: None if the request failed, and empty if the principal may not read them.
    * a function that creates the result of a step whose config could not be read. The function
      takes the name of the step. The result has the state SKIPPED, and a text with the reason.
    """
    try:
        found = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    except KafkaError as error:
        failure = error
        return None, lambda name: no_response(name, failure)
    reason = "the principal may not see the topic's settings (DESCRIBE_CONFIGS)"
    return found, lambda name: skipped(name, reason)


def _partitions(cluster: Cluster, topic: str) -> Step:
    partitions = cluster.topics[topic]
    without = [p.tp.partition for p in partitions if p.leader not in cluster.nodes]
    if without:
        return red(
            _PARTITIONS,
            f"{len(without)} of {len(partitions)} have no leader: {named(without, MOST_NAMED)}",
            "start the brokers that hold them; rows for them wait until then",
            Kind.NO_LEADER,
        )
    return ok(_PARTITIONS, f"{len(partitions)}, each with a leader")


def _rights(topic: TopicMetadata) -> Step:
    if topic.authorized_operations is None:
        return skipped(_RIGHTS, "these brokers don't report the rights of a principal")
    check_write(topic.name, topic.authorized_operations)
    return ok(_RIGHTS, "DESCRIBE and WRITE")


# -- replicas -------------------------------------------------------------------------------------


def _replicas(
    admin: AdminClient,
    config: SinkConfig,
    topic: TopicMetadata,
    settings: Mapping[str, str | None],
    unknown: Step,
) -> Step:
    """Checks that enough replicas of the topic are in sync. If a partition has fewer in-sync
    replicas than min.insync.replicas, writes with acks=all fail (NOT_ENOUGH_REPLICAS).

    ``settings`` are the topic's configs. If they are empty, min.insync.replicas is unknown:

    * If a replica is out of sync, the state of the result is WARNING.
    * If all replicas are in sync, the result is ``unknown``, which has the state SKIPPED.
    """
    rows = in_sync_of(admin, topic, settings)
    lacking = [f"{p} ({n} of {of})" for p, n, of, _ in rows if n < of]
    if not settings:
        risk = f"whether writes are rejected is not known: {unknown.said}"
        return _at_risk(admin, topic, lacking, risk) if lacking else unknown
    setting = f"{LEAST_IN_SYNC}={least_of(settings)}"
    below = below_minimum(admin, topic, settings)
    if below is not None:
        return _below(config, below)
    tight = [p for p, n, of, needed in rows if n == needed and (needed > 1 or n < of)]
    risk = ""
    if tight and config.producer.acks == -1:
        risk = (
            f"{len(tight)} of {len(rows)} partitions have no more replicas in sync than {setting} "
            "needs: with one broker less, every write to these partitions is rejected"
        )
    if lacking or risk:
        return _at_risk(admin, topic, lacking, risk)
    fewest = min(topic.in_sync, default=0)
    said = f"{fewest} in sync at least, {setting}"
    if any(of < least_of(settings) for _, _, of, _ in rows):
        said += f"; brokers since 3.7 need no more than there are replicas ({fewest})"
    return ok(_REPLICAS, said)


def _below(config: SinkConfig, said: str) -> Step:
    if config.producer.acks != -1:
        change = "only writes with kafka.acks other than all succeed"
        return yellow(_REPLICAS, said, change, ErrorCode.NOT_ENOUGH_REPLICAS)
    return red(
        _REPLICAS,
        f"{said}; every write to these partitions is rejected",
        f"start the brokers that are down, or give the topic as many replicas as {LEAST_IN_SYNC}",
        ErrorCode.NOT_ENOUGH_REPLICAS,
    )


def _at_risk(admin: AdminClient, topic: TopicMetadata, lacking: list[str], risk: str) -> Step:
    """A warning about the replicas of the topic. ``lacking`` describes the partitions with replicas
    that are out of sync. ``risk`` describes the consequence if one more broker stops, or is empty
    if there would be no consequence.
    """
    said, change = risk, f"give the topic more replicas than {LEAST_IN_SYNC}"
    if lacking:
        now = (
            f"replicas of {len(lacking)} of {len(topic.in_sync)} partitions are not in sync: "
            f"{named(lacking, MOST_NAMED)}{down(admin, topic)}"
        )
        said = "; ".join(filter(None, (now, risk)))
        change = "start the brokers that are down, or see why replicas lag behind"
    return yellow(_REPLICAS, said, change, ErrorCode.NOT_ENOUGH_REPLICAS)


# -- configs --------------------------------------------------------------------------------------


def _of_configs(config: SinkConfig, topic: str, found: Mapping[str, str | None]) -> Iterator[Step]:
    warnings = list(warnings_of(config.producer, topic, found))
    for name, setting in ((LARGEST, LARGEST), (_COMPRESSION, COMPRESSION)):
        of_it = [one for one in warnings if one.setting == setting]
        yield warned(name, of_it[0]) if of_it else ok(name, found.get(setting) or "")
    policy = found.get(CLEANUP) or ""
    if COMPACT in policy and not config.named_columns.key:
        yield yellow(
            CLEANUP,
            f"{policy}: brokers reject every row without a key, and keep the last row of each key",
            "give each row a key: a column key, or keyColumns",
            Kind.NULL_KEY,
        )
    else:
        yield ok(CLEANUP, policy)


def _report_topic(admin: AdminClient, config: SinkConfig, topic: str, timeout_ms: int) -> Step:
    try:
        existing(admin, topic, timeout_ms)
    except KafkaError as error:
        return _absent(admin, _REPORT_TOPIC, topic, error, timeout_ms)
    described = topics_in_full(admin, (topic,), timeout_ms)[topic]
    check_write(topic, described.authorized_operations)
    found = topic_settings(admin, (topic,), timeout_ms).get(topic, {})
    if COMPACT in (found.get(CLEANUP) or ""):
        return red(
            _REPORT_TOPIC,
            f"{topic} is compacted ({CLEANUP}={found[CLEANUP]}), and brokers reject reports, which "
            "have no key",
            f"set {CLEANUP}=delete on it, or name another topic",
            Kind.NULL_KEY,
        )
    below = below_minimum(admin, described, found)
    if below is not None:
        if config.is_exactly_once:
            said, row = f"{topic}: {below}; the commit, which writes a report, fails", red
        else:
            said, row = f"{topic}: {below}; rows are written without a report", yellow
        return row(
            _REPORT_TOPIC,
            said,
            "start the brokers that are down, or lower the topic's min.insync.replicas",
            ErrorCode.NOT_ENOUGH_REPLICAS,
        )
    for warning in report_warnings(topic, found):
        return warned(_REPORT_TOPIC, warning)
    return ok(_REPORT_TOPIC, topic)
