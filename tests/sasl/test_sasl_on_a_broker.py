"""SASL to a real broker: every mechanism over both protocols; what is wrong is named at once."""

from __future__ import annotations

import contextlib
import logging
import time
import uuid

import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.errors import AuthenticationError, AuthorizationError, KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch
from tests.real_kafka import AT_ONCE_S
from tests.sasl.identity_provider import IdentityProvider, jwt
from tests.waiting import wait_for, with_more_time

SECRET = "tr0mb0ne"


def client_options(secure, protocol, mechanism):
    """How ``alice`` gets in, wherever that is."""
    options = secure.cluster.client_options(protocol, mechanism)
    options.pop("bootstrap.servers", None)
    return options


def bare(secure, **more):
    """Options of SASL_SSL without a credential."""
    more = {name.replace("__", "."): value for name, value in more.items()}
    options = client_options(secure, more.get("security.protocol", "SASL_SSL"), "PLAIN")
    del options["sasl.jaas.config"], options["sasl.mechanism"]
    return options | more


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_rows_arrive_by_every_mechanism(secure_kafka, consume, mechanism):
    """Without TLS, too: ``test_sessions_are_renewed_while_rows_flow_and_none_is_lost``."""
    rows = [b"%05d" % i for i in range(2_000)]
    topic = secure_kafka.kafka.unique_topic("sasl", 3)
    options = client_options(secure_kafka, "SASL_SSL", mechanism)
    with KafkaProducer(config(secure_kafka.bootstrap("SASL_SSL"), options)) as producer:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch(rows)])
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == rows


TYPED, PREPARED = "p\u00adss\u2168word", "pssIXword"


@pytest.mark.parametrize("stored", [TYPED, PREPARED], ids=["as typed", "prepared"])
def test_a_password_beyond_ascii_is_sent_in_the_brokers_form(secure_kafka, caplog, stored):
    from confluent_kafka import admin as confluent

    user = f"carol-{uuid.uuid4().hex[:8]}"
    info = confluent.ScramCredentialInfo(confluent.ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = confluent.UserScramCredentialUpsertion(user, info, stored.encode())
    tools = confluent.AdminClient({"bootstrap.servers": secure_kafka.kafka.bootstrap})
    tools.alter_user_scram_credentials([upsertion])[user].result(60)
    # The controller's answer comes before the broker knows the user. librdkafka tries until then,
    # and sends the password as it is.
    known = {
        "bootstrap.servers": secure_kafka.bootstrap("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": user,
        "sasl.password": stored,
    }
    confluent.AdminClient(known).list_topics(timeout=60)
    options = bare(
        secure_kafka, sasl__mechanism="SCRAM-SHA-256", sasl__username=user, sasl__password=TYPED
    )
    # Who gets this answer is in, and has no right to see the topic.
    with (
        AdminClient(config(secure_kafka.bootstrap("SASL_SSL"), options)) as admin,
        pytest.raises(AuthorizationError, match="TOPIC_AUTHORIZATION_FAILED"),
    ):
        admin.describe_topics(["t"])
    retried = [r.getMessage() for r in caplog.records if "retrying" in r.getMessage()]
    assert len(retried) == (stored != TYPED)
    assert not [line for line in retried if "TLS or SASL listener" in line]


def test_sessions_are_renewed_while_rows_flow_and_none_is_lost(secure_kafka, consume, caplog):
    """REAUTH ends sessions after ten seconds, and tokens of ten seconds end with them: who
    sends then is cut off. All renew once before one renews twice.

    A session is renewed about a second before its end. A machine that stops for longer does that
    too late, so there are three tries. The rows of each try arrive.
    """
    topic = secure_kafka.kafka.unique_topic("reauth", 2)
    sent: list[bytes] = []
    caplog.set_level(logging.DEBUG, logger="spark_kafka_sink.network.channel.kafka_channel")
    caplog.set_level(logging.DEBUG, logger="spark_kafka_sink.network.channel.selector")
    for _ in range(3):
        caplog.clear()
        send_until_renewed(secure_kafka, topic, sent, caplog)
        ended = [r.getMessage() for r in caplog.records if "ended" in r.getMessage()]
        if not ended:
            break
    assert not ended, "in each try somebody was cut off"
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == sent


def send_until_renewed(secure_kafka, topic, sent, caplog):
    """A producer of each mechanism sends until all have renewed their sessions."""
    plan = ColumnPlan(topic, value_column=0)

    def renewed():
        return [r for r in caplog.records if "authenticated again" in r.getMessage()]

    with contextlib.ExitStack() as stack:
        provider = stack.enter_context(IdentityProvider(life_s=10))
        clients = [
            client_options(secure_kafka, "SASL_PLAINTEXT", mechanism)
            for mechanism in ("PLAIN", "SCRAM-SHA-512", "OAUTHBEARER")
        ]
        clients.append(provider.options(security__protocol="SASL_PLAINTEXT"))
        producers = [
            stack.enter_context(KafkaProducer(config(secure_kafka.bootstrap("REAUTH"), options)))
            for options in clients
        ]

        def all_are_renewed():
            for producer in producers:
                rows = [b"%08d" % (len(sent) + i) for i in range(100)]
                attempt(producer, plan, [values_batch(rows)])
                sent.extend(rows)
            return len(renewed()) >= len(producers)

        wait_for(all_are_renewed, 60, "renewed sessions", pause=0.1)
        assert len(provider.asked) >= 2, "no token outlives its end"


# ---- what is wrong (passwords and listeners: security/test_certificate_matrix.py) ----


def refused(bootstrap, options, **more):
    """What the first use of the producer raises, and how many seconds that took."""
    began = time.monotonic()
    producer = KafkaProducer(config(bootstrap, options | {"max.block.ms": 60_000} | more))
    try:
        with pytest.raises(KafkaError) as raised:
            attempt(producer, ColumnPlan("t", value_column=0), [values_batch([b"row"])])
        return raised.value, time.monotonic() - began
    finally:
        producer.close(0)


def test_a_refused_token_is_reported_at_once(secure_kafka):
    for token in (jwt(sub=""), "not-a-jwt"):
        options = bare(
            secure_kafka, sasl__mechanism="OAUTHBEARER", sasl__password=token,
            security__protocol="SASL_PLAINTEXT",
        )  # fmt: skip
        error, seconds = refused(secure_kafka.bootstrap("SASL_PLAINTEXT"), options)
        assert isinstance(error, AuthenticationError)
        for word in ("OAUTHBEARER", "rejects us", "invalid_token", "audience"):
            assert word in str(error)
        assert token not in str(error)
        assert seconds < AT_ONCE_S


def test_an_unavailable_identity_provider_is_retried_in_time(secure_kafka):
    with IdentityProvider() as provider:
        options = bare(secure_kafka, **provider.options())

    def is_retried(limit_ms):
        more = {"max.block.ms": limit_ms}
        error, seconds = refused(secure_kafka.bootstrap("SASL_SSL"), options, **more)
        assert not isinstance(error, AuthenticationError)
        assert f"{provider.url} can't be reached: Connection refused" in str(error)
        assert "TLS or SASL listener" not in str(error)
        assert 0.9 < seconds < limit_ms / 1000 + AT_ONCE_S

    with_more_time(is_retried, 1_000)


def test_an_identity_provider_that_comes_back_is_enough(secure_kafka, consume):
    topic = secure_kafka.kafka.unique_topic("sasl", 1)
    with IdentityProvider(answers=[(503, b""), (500, b"")]) as provider:
        options = bare(secure_kafka, **provider.options())
        with KafkaProducer(config(secure_kafka.bootstrap("SASL_SSL"), options)) as producer:
            attempt(producer, ColumnPlan(topic, value_column=0), [values_batch([b"row"])])
        assert len(provider.asked) == 3
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"row"]
