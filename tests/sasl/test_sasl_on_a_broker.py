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
from tests.waiting import wait_for

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
PROTOCOLS = ["SASL_PLAINTEXT", "SASL_SSL"]
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


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_rows_arrive_by_every_mechanism(secure_kafka, consume, mechanism, protocol):
    rows = [b"%05d" % i for i in range(2_000)]
    topic = secure_kafka.kafka.unique_topic("sasl", 3)
    options = client_options(secure_kafka, protocol, mechanism)
    with KafkaProducer(config(secure_kafka.bootstrap(protocol), options)) as producer:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch(rows)])
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == rows


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_token_of_an_identity_provider_opens_the_door(secure_kafka, consume, protocol):
    topic = secure_kafka.kafka.unique_topic("sasl", 3)
    with IdentityProvider() as provider:
        options = bare(secure_kafka, **provider.options(security__protocol=protocol))
        with KafkaProducer(config(secure_kafka.bootstrap(protocol), options)) as producer:
            attempt(producer, ColumnPlan(topic, value_column=0), [values_batch([b"row"])])
        assert len(provider.asked) == 1, "for the bootstrap connection and the broker's own"
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"row"]


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


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
def test_the_admin_client_gets_in_too(secure_kafka, mechanism):
    topic = secure_kafka.kafka.unique_topic("sasl", 3)
    options = client_options(secure_kafka, "SASL_SSL", mechanism)
    with AdminClient(config(secure_kafka.bootstrap("SASL_SSL"), options)) as admin:
        found = admin.describe_topics([topic])
    assert len(found.topics[topic]) == 3


def test_sessions_are_renewed_while_rows_flow_and_none_is_lost(secure_kafka, consume, caplog):
    """REAUTH ends sessions after ten seconds, and tokens of ten seconds end with them: who
    sends then is cut off. All renew once before one renews twice.
    """
    topic = secure_kafka.kafka.unique_topic("reauth", 2)
    plan, sent = ColumnPlan(topic, value_column=0), []

    def renewed():
        return [r for r in caplog.records if "authenticated again" in r.getMessage()]

    with contextlib.ExitStack() as stack:
        caplog.set_level(logging.DEBUG, logger="spark_kafka_sink.network.channel.kafka_channel")
        caplog.set_level(logging.DEBUG, logger="spark_kafka_sink.network.channel.selector")
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
        ended = [r.getMessage() for r in caplog.records if "ended" in r.getMessage()]
        assert not ended, "nobody was cut off"
        assert len(provider.asked) >= 2, "no token outlives its end"
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == sent


# ---- what is wrong ----


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


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_a_wrong_password_is_reported_at_once(secure_kafka, mechanism, protocol):
    options = bare(
        secure_kafka,
        security__protocol=protocol,
        sasl__mechanism=mechanism,
        sasl__username="alice",
        sasl__password=SECRET,
    )
    error, seconds = refused(secure_kafka.bootstrap(protocol), options)
    assert isinstance(error, AuthenticationError)
    for word in (mechanism, secure_kafka.bootstrap(protocol), "rejects us", "password"):
        assert word in str(error)
    assert SECRET not in str(error)
    assert seconds < AT_ONCE_S


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


def test_an_expired_token_is_not_even_sent(secure_kafka):
    options = bare(
        secure_kafka, sasl__mechanism="OAUTHBEARER", sasl__password=jwt(exp=time.time() - 60)
    )
    error, seconds = refused(secure_kafka.bootstrap("SASL_SSL"), options)
    assert isinstance(error, AuthenticationError)
    assert "the token of the options has expired" in str(error)
    assert seconds < AT_ONCE_S


def test_a_refusing_identity_provider_is_reported_at_once(secure_kafka):
    with IdentityProvider(client_secret="another") as provider:
        options = bare(secure_kafka, **provider.options())
        options["sasl.oauthbearer.client.credentials.client.secret"] = SECRET
        error, seconds = refused(secure_kafka.bootstrap("SASL_SSL"), options)
    assert isinstance(error, AuthenticationError)
    for word in ("answered 401: invalid_client - who are you?", provider.url, "client secret"):
        assert word in str(error)
    assert SECRET not in str(error)
    assert seconds < AT_ONCE_S


def test_an_unavailable_identity_provider_is_retried_in_time(secure_kafka):
    with IdentityProvider() as provider:
        options = bare(secure_kafka, **provider.options())
    error, seconds = refused(secure_kafka.bootstrap("SASL_SSL"), options, **{"max.block.ms": 3_000})
    assert not isinstance(error, AuthenticationError)
    assert f"{provider.url} can't be reached: Connection refused" in str(error)
    assert "TLS or SASL listener" not in str(error)
    assert 2.9 < seconds < AT_ONCE_S


def test_an_identity_provider_that_comes_back_is_enough(secure_kafka, consume):
    topic = secure_kafka.kafka.unique_topic("sasl", 1)
    with IdentityProvider(answers=[(503, b""), (500, b"")]) as provider:
        options = bare(secure_kafka, **provider.options())
        with KafkaProducer(config(secure_kafka.bootstrap("SASL_SSL"), options)) as producer:
            attempt(producer, ColumnPlan(topic, value_column=0), [values_batch([b"row"])])
        assert len(provider.asked) == 3
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"row"]


@pytest.mark.parametrize(
    ("listener", "options", "words", "at_once"),
    [
        ("SASL_PLAINTEXT", {"sasl.mechanism": "AWS_MSK_IAM"},
         ("does not offer this mechanism", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"), True),
        ("PLAINTEXT", {}, ("does not require SASL", "type PLAINTEXT?"), True),
        ("GOOD", {"security.protocol": "SASL_SSL", "ssl.truststore.location": "ca"},
         ("does not require SASL", "type SSL?"), True),
        ("SASL_SSL", {}, ("the port speaks TLS", "SASL_SSL"), True),
        ("SASL_PLAINTEXT", {"security.protocol": "SASL_SSL"},
         ("is it a PLAINTEXT or SASL_PLAINTEXT port?",), False),
        ("SASL_PLAINTEXT", {"security.protocol": "PLAINTEXT"},
         ("when it was asked for more", "does it require SASL?", "security.protocol"), False),
    ],
    ids=["unknown mechanism", "SASL to PLAINTEXT", "SASL to SSL", "SASL_PLAINTEXT to TLS",
         "SASL_SSL to no TLS", "PLAINTEXT to SASL"],
)  # fmt: skip
def test_a_wrong_listener_is_an_error_that_names_the_right_one(
    secure_kafka, monkeypatch, listener, options, words, at_once
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "A")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"} | options
    if not given["security.protocol"].startswith("SASL"):
        del given["sasl.mechanism"]
    elif given["sasl.mechanism"] == "PLAIN":
        given |= {"sasl.username": "alice", "sasl.password": SECRET}
    if given["security.protocol"].endswith("SSL"):
        given = bare(secure_kafka) | given
    if given.get("ssl.truststore.location") == "ca":
        given["ssl.truststore.location"] = str(secure_kafka.ca)
    error, seconds = refused(
        secure_kafka.bootstrap(listener), given, **({} if at_once else {"max.block.ms": 3_000})
    )
    for word in (*words, secure_kafka.bootstrap(listener)):
        assert word in str(error), str(error)
    assert SECRET not in str(error)
    assert seconds < AT_ONCE_S
    assert isinstance(error, AuthenticationError) == at_once


# ---- Spark ----


def test_a_wrong_password_fails_on_the_driver_before_any_task(secure_kafka, spark):
    client = bare(secure_kafka, sasl__mechanism="PLAIN", sasl__username="alice",
                          sasl__password=SECRET)  # fmt: skip
    options = {"kafka.bootstrap.servers": secure_kafka.bootstrap("SASL_SSL"), "topic": "t"}
    options |= {f"kafka.{name}": value for name, value in client.items()}
    rows = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(Exception, match="rejects us") as raised:
        rows.write.format("kprod").options(**options).save()
    assert "PLAIN" in str(raised.value)
    assert SECRET not in str(raised.value)
