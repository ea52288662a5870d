"""What several options of the producer mean together, in Java's words."""

import pytest

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded
from spark_kafka_sink.config.option_table import JAVA_PARTITIONERS
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.records.partitioning.partitioners import partitioner

SERVERS = {"bootstrap.servers": "127.0.0.1:9092"}
PLAIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
IN_FLIGHT = "max.in.flight.requests.per.connection"


def parse(options):
    return parse_producer_config(SERVERS | options)


def refused(options):
    with pytest.raises(ConfigError) as caught:
        parse(options)
    return caught.value


def test_a_too_short_delivery_timeout_names_all_three_values():
    """KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig."""
    error = refused({"delivery.timeout.ms": "1"})
    assert error.message == (
        "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms"
    )
    assert error.hint == (
        "delivery.timeout.ms is 1, linger.ms is 5 and request.timeout.ms is 30000"
    )


def test_a_default_delivery_timeout_is_raised_with_a_warning():
    """KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig."""
    config = parse({"request.timeout.ms": "200000", "linger.ms": "100"})
    assert config.delivery_timeout_ms == 200_100
    assert config.warnings == (
        coded(
            Kind.OTHER_VALUE,
            "delivery.timeout.ms should be equal to or larger than linger.ms + request.timeout.ms."
            " Setting it to 200100.",
        ),
    )


def test_the_wait_for_memory_follows_delivery_timeout_by_default():
    assert parse({"delivery.timeout.ms": "90000"}).buffer_wait_ms == 90_000
    assert parse({"request.timeout.ms": "200000"}).buffer_wait_ms == 200_005
    assert parse({"max.block.ms": "60000"}).buffer_wait_ms == 60_000
    assert parse({"max.block.ms": "0"}).buffer_wait_ms == 0


@pytest.mark.parametrize("options", [{"acks": "0"}, {"acks": "1"}, {"retries": "0"}])
def test_idempotence_by_default_gives_way_with_a_warning(options):
    """KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig."""
    config = parse(options)
    assert config.enable_idempotence is False
    (warning,) = config.warnings
    assert warning.startswith("[KP0152] Idempotence will be disabled because ")
    assert next(iter(options)) in warning


IDEMPOTENT = {"enable.idempotence": "true"}
NOT = {"enable.idempotence": "false"}
SSL = {"security.protocol": "SSL"}
ACKS = (
    "Must set acks to all in order to use the idempotent producer. Otherwise we cannot guarantee"
    " idempotence."
)
SIX = (
    "To use the idempotent producer, max.in.flight.requests.per.connection must be set to at most"
    " 5. Current value is 6."
)
NO_ID = "Cannot set a transactional.id without also enabling idempotence."
NO_MECHANISM = (
    "Invalid value null for configuration sasl.mechanism: When the security.protocol configuration"
    " enables SASL, mechanism must be non-null and non-empty string."
)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (IDEMPOTENT | {"acks": "1"}, ACKS),
        (
            IDEMPOTENT | {"retries": "0"},
            "Must set retries to non-zero when using the idempotent producer.",
        ),
        ({IN_FLIGHT: "6"}, SIX),
        ({IN_FLIGHT: "6"} | IDEMPOTENT, SIX),
        ({IN_FLIGHT: "6", "acks": "1"}, SIX),
        ({"transactional.id": "x"} | NOT, NO_ID),
        ({"transactional.id": "x", "acks": "1"}, NO_ID),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": ""}, NO_MECHANISM),
        (
            SSL | {"ssl.truststore.location": "/c", "ssl.truststore.certificates": "${env:CERTS}"},
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            SSL | {"ssl.keystore.location": "/k", "ssl.keystore.key": "k"},
            "Both SSL key store location and separate private key are specified.",
        ),
        (
            SSL | {"ssl.truststore.certificates": "c", "ssl.truststore.password": "p"},
            "SSL trust store password cannot be specified for PEM format.",
        ),
        (
            SSL | {"ssl.truststore.password": "p"},
            "SSL trust store is not specified, but trust store password is specified.",
        ),
        (
            SSL | {"ssl.keystore.password": "p"},
            "SSL key store is not specified, but key store password is specified.",
        ),
    ],
)
def test_options_that_contradict_each_other_are_javas_error(options, message):
    """KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig."""
    assert refused(options).message == message


def test_more_than_five_in_flight_is_fine_without_idempotence():
    config = parse({IN_FLIGHT: "6"} | NOT)
    assert (config.max_in_flight_requests_per_connection, config.warnings) == (6, ())


@pytest.mark.parametrize(
    "options",
    [
        NOT | {"acks": "1"},
        SSL | {"ssl.truststore.location": "", "ssl.key.password": ""},
        SSL | {"ssl.endpoint.identification.algorithm": "HTTPS"},
        {"enable.metrics.push": "false"},
        {"metric.reporters": ""},
        {"metadata.cluster.check.enable": "false"},
        {"reconnect.backoff.ms": "200", "reconnect.backoff.max.ms": "400"},
        {"client.dns.lookup": "resolve_canonical_bootstrap_servers_only"},
    ],
    ids="+".join,
)
def test_what_asks_for_nothing_else_is_no_warning(options):
    assert parse(options).warnings == ()


def test_options_of_the_producer_alone_need_no_prefix():
    config = parse(
        {
            "transactional.id": "x",
            "transaction.timeout.ms": "5000",
            "key.serializer": "str",
            "value.serializer": "org.apache.kafka.common.serialization.LongSerializer",
            "interceptor.classes": "a.b:C, d.E",
        }
    )
    assert (config.transactional_id, config.transaction_timeout_ms) == ("x", 5000)
    assert config.key_serializer == "str"
    assert config.value_serializer == "org.apache.kafka.common.serialization.LongSerializer"
    assert config.interceptor_classes == ("a.b:C", "d.E")
    assert config.warnings == ()


MECHANISM, STORE = {"sasl.mechanism": "PLAIN"}, {"ssl.truststore.location": "/x"}
CHECK = {"ssl.endpoint.identification.algorithm": "https"}


@pytest.mark.parametrize(
    ("given", "protocol", "idle", "wanted"),
    [
        (MECHANISM | STORE, "PLAINTEXT, the default", MECHANISM | STORE, "SASL_SSL"),
        (STORE, "PLAINTEXT", STORE, "SSL"),
        (MECHANISM | STORE, "SSL", MECHANISM, "SASL_SSL"),
        (MECHANISM | CHECK, "SASL_PLAINTEXT", CHECK, "SASL_SSL"),
    ],
)
def test_security_that_the_protocol_does_not_use_is_an_error(given, protocol, idle, wanted):
    named = {} if protocol.endswith("default") else {"security.protocol": protocol.lower()}
    error = refused(given | named)
    assert error.message == (
        f"{', '.join(idle)} would have no effect, because security.protocol is {protocol}"
    )
    assert error.hint.startswith(f"set security.protocol={wanted}")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_what_is_not_supported_is_refused_before_what_has_no_effect(protocol):
    """Its user set a protocol for it first, and met the refusal then."""
    factory = {"ssl.engine.factory.class": "com.example.Factory"}
    error = refused(factory | {"security.protocol": protocol})
    assert error.message == (
        "ssl.engine.factory.class=com.example.Factory is not supported by this version"
    )


JAAS = {
    "PLAIN": 'a.b.PlainLoginModule required username="u" password="p";',
    "OAUTHBEARER": 'a.b.OAuthBearerLoginModule required oauth.access.token="t";',
    "AWS_MSK_IAM": "a.b.IAMLoginModule required;",
    "SCRAM-SHA-512": 'a.b.ScramLoginModule required username="u" password="p";',
}


@pytest.mark.parametrize("way", ["inline", "reference", "file", "file without mechanism"])
@pytest.mark.parametrize("mechanism", JAAS)
def test_a_secret_without_tls_is_warned_of_whichever_way_it_came(mechanism, way, tmp_path):
    """SCRAM alone does not tell who listens what the password is."""
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if way == "inline":
        options["sasl.jaas.config"] = JAAS[mechanism]
    elif way == "reference":
        options["sasl.jaas.config"] = "${file:/etc/jaas}"
    else:
        path = tmp_path / "client.properties"
        path.write_text(f"sasl.jaas.config={JAAS[mechanism]}")
        options["configFile"] = str(path)
        if way != "file":
            del options["sasl.mechanism"]
            path.write_text(f"sasl.jaas.config={JAAS[mechanism]}\nsasl.mechanism={mechanism}")
    warnings = parse(options).warnings
    if mechanism.startswith("SCRAM"):
        assert warnings == ()
        return
    (warning,) = warnings
    assert warning.startswith("[KP0153] security.protocol is SASL_PLAINTEXT and sasl.mechanism is ")
    assert mechanism in warning
    assert "is sent in the clear" in warning
    assert parse(options | {"security.protocol": "SASL_SSL"}).warnings == ()


def test_a_mechanism_behind_a_reference_is_a_warning_without_tls():
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.jaas.config": "${env:JAAS}"}
    (warning,) = parse(options).warnings
    assert "which is looked up later" in warning


def test_a_reconnect_backoff_alone_is_constant():
    """KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig."""
    config = parse({"reconnect.backoff.ms": "200"})
    assert config.reconnect_backoff_max_ms == 200
    assert config.warnings == (
        coded(
            Kind.OTHER_VALUE,
            "Disabling exponential reconnect backoff because reconnect.backoff.ms is set, but"
            " reconnect.backoff.max.ms is not.",
        ),
    )


def test_a_retry_backoff_above_its_maximum_is_javas_warning():
    """KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig."""
    (warning,) = parse({"retry.backoff.ms": "5000"}).warnings
    assert warning == coded(
        Kind.OTHER_VALUE,
        "Configuration 'retry.backoff.ms' with value '5000' is greater than configuration"
        " 'retry.backoff.max.ms' with value '1000'. A static backoff with value '1000' will be"
        " applied.",
    )
    (warning,) = parse({"socket.connection.setup.timeout.ms": "40000"}).warnings
    assert "A static connection setup timeout with value '30000' will be applied." in warning


def test_a_batch_is_never_larger_than_the_pool():
    config = parse({"buffer.memory": "16384"})
    assert (config.batch_size, config.warnings) == (16384, ())
    config = parse({"buffer.memory": "16384", "batch.size": "32768"})
    assert config.batch_size == 16384
    assert "larger than buffer.memory" in config.warnings[0]


@pytest.mark.parametrize("package", ["", "org.apache.kafka.clients.producer."])
def test_javas_names_of_partitioners_are_understood(package):
    for name, found in (
        ("DefaultPartitioner", (None, False)),
        ("UniformStickyPartitioner", (None, True)),
        ("RoundRobinPartitioner", ("RoundRobinPartitioner", False)),
    ):
        config = parse({"partitioner.class": package + name})
        assert (config.partitioner_class, config.partitioner_ignore_keys) == found
    inner = f"{package}internals.DefaultPartitioner"
    if package:
        assert parse({"partitioner.class": inner}).partitioner_class is None


def test_what_a_configuration_calls_a_partitioner_can_be_made():
    for name in JAVA_PARTITIONERS:
        config = parse({"partitioner.class": name})
        partitioner(config.partitioner_class, ignore_keys=config.partitioner_ignore_keys)


def test_the_import_path_of_a_partitioner_is_kept_as_it_is():
    for path in ("com.example.Mine", "my.module:Mine"):
        assert parse({"partitioner.class": path}).partitioner_class == path


@pytest.mark.parametrize("name", ["org.apache.kafka.clients.producer.Mine", "Unknown", ""])
def test_an_unknown_partitioner_is_an_error(name):
    error = refused({"partitioner.class": name})
    assert error.message.startswith(f"Invalid value {name} for configuration partitioner.class: ")


def test_equal_configurations_are_one_key_whatever_was_warned():
    one = parse({"acks": "1"})
    other = parse({"acks": "1", "enable.idempotence": "false"})
    assert one.warnings
    assert not other.warnings
    assert one == other
    assert {one: 1}[other] == 1
    assert parse({"batch.size": "5"}) != parse({"batch.size": "6"})
    assert parse(PLAIN | {"sasl.password": "a"}) != parse(PLAIN | {"sasl.password": "b"})


def test_no_secret_is_shown():
    secrets = dict.fromkeys(
        ("ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.key.password"), "canary-7f3a"
    )
    config = parse(PLAIN | secrets | {"sasl.password": "canary-7f3a"})
    assert "canary" not in repr(config)
    assert "canary" not in str(config)
    assert "canary" not in f"{config}{config.warnings}"
    with pytest.raises(AttributeError):
        config.acks = 0  # frozen
    for options in (
        secrets,
        secrets | {"security.protocol": "SASL_SSL", "sasl.jaas.config": "canary-7f3a"},
        {"sasl.passwrod": "canary-7f3a"},
        {"sasl.jaas.config": None},
    ):
        error = refused(options)
        assert "canary" not in str(error) + repr(error)
