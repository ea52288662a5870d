"""The steps of ``kprod check`` for producer ids, transactions and the commit log.

``transactions/exactly_once.py`` sends the requests that check the rights on transactional ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import AuthorizationError, ConfigError, KafkaError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import Step, failed, ok, skipped, step_of
from spark_kafka_sink.datasource.checks.replicas import check_replicas
from spark_kafka_sink.datasource.checks.topic_checks import (
    check_write,
    topic_settings,
    topics_in_full,
)
from spark_kafka_sink.protocol.transaction_requests import init_producer_id
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.exactly_once import check_rights
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX

_IDS, _COORDINATOR, _TIMEOUT, _LOG = (
    *("transactional ids", "coordinator", "transaction timeout"),
    "commit log",
)
#: The steps of this module, in order.
OF_TRANSACTIONS: Final = (_IDS, _COORDINATOR, _TIMEOUT, _LOG)
#: The step of a write without exactly-once.
PRODUCER_ID: Final = "producer id"


def producer_id_step(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    """Checks that a producer can get a producer id, which idempotence needs. Without idempotence,
    this step is skipped. With exactly-once, this step is also skipped, because the steps of
    :data:`OF_TRANSACTIONS` check the transactional id instead.
    """
    if config.is_exactly_once or not config.producer.enable_idempotence:
        why = f"deliveryGuarantee is {config.delivery_guarantee}"
        return iter((skipped(PRODUCER_ID, why),))
    return step_of(PRODUCER_ID, lambda: _producer_id(admin, config, timeout_ms))


def _producer_id(admin: AdminClient, config: SinkConfig, timeout_ms: int) -> Step:
    call = Call(
        init_producer_id(None, config.producer.transaction_timeout_ms),
        AnyBroker(),
        "InitProducerId",
        lambda response: response.error_code,
        "WRITE on a topic (brokers before 2.8: IDEMPOTENT_WRITE on the cluster)",
    )
    admin.loop.send_and_receive(call, admin.deadline(timeout_ms))
    return ok(PRODUCER_ID, "given: a request that is repeated doubles no row")


def transaction_steps(config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    """Yields the results of the steps for transactions. Without exactly-once each step is
    skipped.
    """
    if not config.is_exactly_once:
        reason = f"deliveryGuarantee is {config.delivery_guarantee}"
        yield from (skipped(name, reason) for name in OF_TRANSACTIONS)
        return
    with TransactionClient(config.producer) as client:
        yield from steps_with(client, config, timeout_ms)


def steps_with(client: TransactionClient, config: SinkConfig, timeout_ms: int) -> Iterator[Step]:
    """Yields the results of the steps for transactions. ``client`` is an open client, which stays
    open.
    """
    prefix = config.transactional_id_prefix or DEFAULT_PREFIX
    limit_ms = config.producer.transaction_timeout_ms
    try:
        check_rights(client, prefix, client.deadline(timeout_ms))
    except AuthorizationError as error:
        yield failed(_IDS, error)
    except ConfigError as error:
        yield ok(_IDS, f"{prefix}~...: WRITE and DESCRIBE")
        yield ok(_COORDINATOR, "answers")
        yield failed(_TIMEOUT, error)
    except KafkaError as error:
        yield skipped(_IDS, "no coordinator for them answered")
        yield failed(_COORDINATOR, error)
    else:
        yield ok(_IDS, f"{prefix}~...: WRITE and DESCRIBE")
        yield ok(_COORDINATOR, "answers")
        yield ok(_TIMEOUT, f"{limit_ms} ms")
    topic = config.commit_log_topic
    yield from step_of(_LOG, lambda: _log(client, topic, prefix, timeout_ms))


def _log(client: TransactionClient, topic: str, prefix: str, timeout_ms: int) -> Step:
    log = CommitLog(client, topic)
    keys = log.states(prefix, client.deadline(timeout_ms))
    if keys is None:
        log.check_creation(client.deadline(timeout_ms))
        return ok(_LOG, f"{topic} does not exist yet: the first write creates it, as it may")
    found = topics_in_full(client, (topic,), timeout_ms)[topic]
    check_write(topic, found.authorized_operations)
    settings = topic_settings(client, (topic,), timeout_ms).get(topic, {})
    check_replicas(client, found, settings)
    return ok(_LOG, f"{topic}: {len(keys)} keys of '{prefix}'")
