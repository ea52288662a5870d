"""The option map of a Spark write: whose name is it, and what is promised."""

import pickle
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.documentation import page_address
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.names.foreign_options import foreign_options
from spark_kafka_sink.config.option import INT_MAX, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.config.sink_config import DeliveryGuarantee, Preflight

FOREIGN = foreign_options()
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(options=None):
    return parse_sink_config(SERVERS | (options or {}))


def refused(options):
    with pytest.raises(ConfigError) as caught:
        parse(options)
    return caught.value


def config_or_error(read):
    try:
        return read()
    except ConfigError as error:
        return error


def test_the_defaults():
    config = parse()
    assert config.producer == parse_producer_config({"bootstrap.servers": "127.0.0.1:9092"})
    assert config.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
    assert (config.topic, config.preflight, config.report_path) == (None, None, None)
    assert config.warnings == ()


def test_options_arrive_lower_cased_by_spark():
    config = parse(
        {
            "topic": " flights ",
            "deliveryguarantee": "NONE",
            "preflight": "Off",
            "reportpath": "/tmp/r.json",
            "kafka.batch.size": "1000",
        }
    )
    assert config.topic == "flights"
    assert config.delivery_guarantee is DeliveryGuarantee.NONE
    assert config.preflight is Preflight.OFF
    assert config.report_path == "/tmp/r.json"
    assert config.producer.batch_size == 1000


def test_two_spellings_of_one_option_are_refused():
    error = refused({"kafka.acks": "all", "Kafka.Acks": "1"})
    assert "'kafka.acks' and 'Kafka.Acks' are the same option" in error.message
    with pytest.raises(ConfigError, match="same option"):
        parse_producer_config({"bootstrap.servers": "a:1", "Bootstrap.servers": "b:2"})


def test_the_preflight_depends_on_the_mode_until_it_is_set():
    assert parse().preflight_for(streaming=False) is Preflight.REQUIRED
    assert parse().preflight_for(streaming=True) is Preflight.WARN
    assert parse({"preflight": "off"}).preflight_for(streaming=False) is Preflight.OFF


# --- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("kafka.bach.size", "did you mean kafka.batch.size?"),
        ("kafka.lingr.ms", "did you mean kafka.linger.ms?"),
        ("kafka.bootstrap.server", "did you mean kafka.bootstrap.servers?"),
        ("topics", "did you mean topic?"),
        ("kafka.topic", "write topic: the sink's own options take no prefix"),
        (
            "kafka.transactionalidprefix",
            "write transactionalIdPrefix: the sink's own options take no prefix",
        ),
        ("deliveryguarante", "did you mean deliveryGuarantee?"),
        ("report_path", "did you mean reportPath?"),
        ("bootstrap.servers", "@kafka.bootstrap.servers"),
        ("dlqTopic", "did you mean errors.deadletterqueue.topic.name?"),
        ("kafka.kafka.acks", "did you mean kafka.acks?"),
        ("zzzzzz", f"every option: kprod options, or {page_address('options')}"),
        ("kafka.", f"every option: kprod options, or {page_address('options')}"),
    ],
)  # fmt: skip
def test_an_unknown_name_gets_the_nearest_one(name, nearest):
    error = refused({name: "1"})
    assert error.message == f"Unknown option '{name}'"
    prefix = "options of Kafka's producer take the prefix: "
    assert error.hint == nearest.replace("@", prefix)


def test_the_public_producer_takes_no_prefix_and_says_so():
    with pytest.raises(ConfigError) as caught:
        parse_producer_config({"kafka.bootstrap.servers": "a:1"})
    assert caught.value.hint == "write bootstrap.servers: no prefix in this place"
    with pytest.raises(ConfigError, match="is the Spark sink's; a producer has no such option"):
        parse_producer_config({"bootstrap.servers": "a:1", "reportPath": "/r"})


@pytest.mark.parametrize(
    ("name", "owner"),
    [(name, "source") for name in FOREIGN.owners["source"].names]
    + [(f"kafka.{name}", "consumer") for name in FOREIGN.owners["consumer"].names],
)
def test_an_option_of_a_source_or_consumer_is_said_to_be_one(name, owner):
    assert f"belongs to a Kafka {owner}" in refused({name: "1"}).message


@pytest.mark.parametrize("name", sorted(FOREIGN.librdkafka))
def test_a_name_of_librdkafka_gets_javas(name):
    error = refused({f"kafka.{name}": "1"})
    assert "librdkafka" in error.message
    java = FOREIGN.librdkafka[name]
    if java is None:
        assert "remove it" in error.hint
    else:
        names = re.sub(r"[a-z][a-z.0-9]+(?=,| or |$)", r"kafka.\g<0>", java)
        assert error.hint.partition("; ")[0] == f"use {names}"
        assert any(part in PRODUCER_OPTIONS for part in java.replace(",", "").split())


def test_a_name_has_one_owner():
    ours = set(PRODUCER_OPTIONS)
    consumers = set(FOREIGN.owners["consumer"].names)
    assert not ours & consumers
    assert not ours & set(FOREIGN.librdkafka)
    assert not consumers & set(FOREIGN.librdkafka)
    assert all(name == name.lower() for name in ours)


def test_sparks_own_options_pass_in_silence():
    config = parse({"path": "/x", "checkpointlocation": "/c", "queryname": "q"})
    assert config == replace(parse(), checkpoint_location="/c")
    assert parse({"includeHeaders": "true"}).warnings == ()


@pytest.mark.parametrize(
    "name", [n for n, o in PRODUCER_OPTIONS.items() if o.status is Status.REMOVED]
)
def test_what_java_once_had_is_one_warning(name):
    (warning,) = parse({f"kafka.{name}": "true"}).warnings
    assert warning.startswith(
        f"[KP0150] Option 'kafka.{name}' has no effect: Removed from Kafka after "
    )


def test_what_has_no_meaning_here_is_one_warning_each():
    config = parse({"kafka.metrics.recording.level": "DEBUG", "kafka.metrics.context.x": "y"})
    assert [w.split("'")[1] for w in config.warnings] == [
        "kafka.metrics.context.x",
        "kafka.metrics.recording.level",
    ]
    assert config == parse()


# --- guarantees --------------------------------------------------------------------------------


def exactly_once(**options):
    return parse({"deliveryGuarantee": "Exactly-Once"} | options)


def test_exactly_once_has_a_default_timeout_of_a_quarter_hour():
    config = exactly_once()
    assert config.delivery_guarantee is DeliveryGuarantee.EXACTLY_ONCE
    assert config.is_exactly_once
    assert config.producer.transaction_timeout_ms == 900_000
    assert config.warnings == ()
    told = exactly_once(**{"kafka.transaction.timeout.ms": "60000"})
    assert (told.producer.transaction_timeout_ms, told.warnings) == (60_000, ())
    (short,) = exactly_once(**{"kafka.transaction.timeout.ms": "59999"}).warnings
    assert short.startswith("[KP0154] kafka.transaction.timeout.ms is 59999 ms: a stage that takes")


def test_the_options_of_exactly_once_are_read():
    config = exactly_once(
        transactionalIdPrefix="shop.orders",
        txnAppId="nightly",
        txnVersion="9",
        commitLogTopic="log",
    )
    assert config.transactional_id_prefix == "shop.orders"
    assert (config.txn_app_id, config.txn_version, config.commit_log_topic) == ("nightly", 9, "log")
    bare = exactly_once()
    assert (bare.transactional_id_prefix, bare.txn_app_id, bare.txn_version) == (None, None, None)
    assert bare.commit_log_topic == "__kprod_commits"
    assert exactly_once(txnAppId="a", txnVersion="0").txn_version == 0


@pytest.mark.parametrize("streaming", [True, False])
def test_exactly_once_requires_the_preflight_by_default(streaming):
    assert exactly_once().preflight_for(streaming=streaming) is Preflight.REQUIRED
    assert exactly_once(preflight="off").preflight_for(streaming=streaming) is Preflight.OFF


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.acks": "0"},
        {"kafka.acks": "1"},
        {"kafka.retries": "0"},
        {"kafka.enable.idempotence": "false"},
    ],
)
def test_options_against_idempotence_contradict_a_guarantee(options):
    error = refused(options | {"deliveryGuarantee": "at-least-once"})
    assert error.message.startswith("deliveryGuarantee=at-least-once needs an idempotent producer")
    assert next(iter(options)) in error.message


def test_none_switches_idempotence_off_and_leaves_acks():
    config = parse({"deliveryGuarantee": "none"})
    assert (config.producer.enable_idempotence, config.producer.acks) == (False, -1)
    assert parse({"deliveryGuarantee": "none", "kafka.acks": "0"}).producer.acks == 0
    assert config.warnings == ()


def test_hints_name_options_with_their_prefix():
    assert refused({"kafka.batch.size": "x"}).hint.startswith("kafka.batch.size takes int")
    error = refused({"kafka.delivery.timeout.ms": "1"})
    assert error.hint.startswith("kafka.delivery.timeout.ms is 1, kafka.linger.ms is 5")


TEXTS = st.text() | st.integers().map(str) | st.none() | st.sampled_from(
    ["true", "false", "all", "none", "0", "at-least-once", "off", "t", "a:1"]
)  # fmt: skip
#: What a producer of one's own may be given, too.
VALUES = TEXTS | st.integers() | st.booleans() | st.floats() | st.lists(st.text(), max_size=3)


@st.composite
def some_options(draw):
    """Of a write, or of a producer: its prefix, and options."""
    prefix = draw(st.sampled_from(["kafka.", ""]))
    known = [prefix + name for name in PRODUCER_OPTIONS] + (list(SINK_OPTIONS) if prefix else [])
    names = st.sampled_from(known) | st.text() | st.text().map(prefix.__add__)
    servers = draw(st.sampled_from([{}, {f"{prefix}bootstrap.servers": "a:1"}]))
    return prefix, draw(st.dictionaries(names, TEXTS if prefix else VALUES, max_size=6)) | servers


@settings(max_examples=400, deadline=None)
@given(some_options())
def test_parsing_raises_config_error_and_nothing_else(given):
    prefix, options = given
    parse = parse_sink_config if prefix else parse_producer_config
    config = config_or_error(lambda: parse(options))
    if isinstance(config, ConfigError):
        assert "\n" not in config.message
        return
    copy = pickle.loads(pickle.dumps(config))
    assert (copy, hash(copy)) == (config, hash(config)) == (parse(options), hash(parse(options)))
    producer = config
    if prefix:
        producer = config.producer
        idempotent = config.delivery_guarantee is DeliveryGuarantee.AT_LEAST_ONCE
        assert producer.enable_idempotence is idempotent
    assert producer.batch_size >= 1
    longest = min(producer.linger_ms + producer.request_timeout_ms, INT_MAX)
    assert producer.delivery_timeout_ms >= longest


@pytest.mark.parametrize("given", ["onnullvalue", "onNullValue", "ONNULLVALUE"])
def test_a_hint_spells_an_option_as_documented(given):
    assert refused({given: "x"}).hint.startswith("onNullValue takes string")


def test_an_error_of_a_login_names_options_as_they_are_written():
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    given = {"bootstrap.servers": "b:9092"} | login
    for parse, prefix in ((parse_sink_config, "kafka."), (parse_producer_config, "")):
        with pytest.raises(ConfigError) as caught:
            parse({prefix + name: value for name, value in given.items()})
        hint = caught.value.hint or ""
        assert caught.value.message.startswith(f"{prefix}sasl.mechanism is OAUTHBEARER")
        assert f"set {prefix}sasl.oauthbearer.token.endpoint.url, {prefix}sasl.login" in hint


def test_an_error_of_a_login_leaves_the_users_words_as_they_are(tmp_path):
    """Names that only look like options; and what stands in a file has no prefix there."""
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    jaas = {"kafka.sasl.jaas.config": 'a.PlainLoginModule required sasl.name="x";'}
    assert refused(login | jaas).message == (
        "kafka.sasl.jaas.config: PlainLoginModule has no option sasl.name"
    )
    file = tmp_path / "client.properties"
    file.write_text("sasl.login.retry.backoff.ms=200\n")
    given = login | {"kafka.sasl.username": "u", "configFile": str(file)}
    assert "needs kafka.sasl.username and kafka.sasl.password" in refused(given).message
