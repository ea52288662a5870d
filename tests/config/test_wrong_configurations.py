"""A table of wrong names and values: each is an error, and says first what was meant.

(Options that contradict each other: ``bad_input/wrong_configurations.jsonl``.)
The figure (how often the right name or value is the first one that is proposed) is printed.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.send.serialization import serializer
from spark_kafka_sink.producer.wiring import ProducerOptions
from spark_kafka_sink.records.partitioning import own_partitioner

GOOD = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
SEED = 20_261_122
ENOUGH = 0.95

#: What a hint proposes: the first name or value after one of these.
PROPOSED = re.compile(r"(?:did you mean|use|write|take the prefix:|\bset) ([^ ,;?]+)")
#: Spark's map of options holds text; None takes one of GOOD away.
Options = dict[str, str | None]


@dataclass(frozen=True)
class Wrong:
    """``options`` or ``line`` (of a configFile) beside good ones; ``meant`` is what the first
    proposal must be, or None when nothing near is legal; ``names`` are in the error in any case.
    """

    what: str
    options: Options
    line: str | None = None
    meant: str | None = None
    names: tuple[str, ...] = ()

    def error(self, directory) -> ConfigError:
        options = {k: v for k, v in (GOOD | self.options).items() if v is not None}
        if self.line is not None:
            path = directory / "client.properties"
            path.write_text(self.line + "\n")
            options["configFile"] = str(path)
        try:
            parse_sink_config(options)
        except ConfigError as error:
            return error
        return pytest.fail(f"taken: {self.what}")


def misspelt(name: str, choice: random.Random) -> str:
    """``name`` with one edit: a letter less, more or another, or two changed places."""
    known = {*PRODUCER_OPTIONS, *map(str.lower, SINK_OPTIONS)}
    while True:
        at = choice.randrange(len(name))
        letter = choice.choice("abcdefghijklmnopqrstuvwxyz._-")
        swapped = name[at : at + 2][::-1]
        edit = choice.choice(
            [
                name[:at] + name[at + 1 :],
                name[:at] + letter + name[at:],
                name[:at] + letter + name[at + 1 :],
                name[:at] + swapped + name[at + 2 :],
            ]
        )
        # In a properties file these begin a comment or end a name; nobody's typing error.
        if edit.lower() not in known and edit.strip() == edit:
            return edit


def misspelt_names() -> list[Wrong]:
    """Every option of the table, as an option and as a line of a file."""
    choice = random.Random(SEED)
    found = []
    for option in [*PRODUCER_OPTIONS.values(), *SINK_OPTIONS.values()]:
        if option.internal:
            continue  # nobody writes it
        prefix = "kafka." if option.name in PRODUCER_OPTIONS else ""
        edit = misspelt(option.name, choice)
        meant = prefix + option.name if option.suggested else None
        found.append(Wrong(f"option {edit}", {prefix + edit: "1"}, meant=meant, names=(edit,)))
        edit = misspelt(option.name, choice)
        meant = option.name if option.suggested else None
        found.append(Wrong(f"line {edit}", {}, f"{edit}=1", meant, (edit,)))
    return found


#: name, value, what was meant. Each is tried as an option and as a line. (More to which no legal
#: value is near: the table of ``bad_input``, and ``test_config_values.py``.)
VALUES = [
    ("deliveryGuarantee", "exactly-onse", "exactly-once"),
    ("deliveryGuarantee", "exactly_once_v2", "exactly-once"),
    ("deliveryGuarantee", "at-most-once", "none"),
    ("deliveryGuarantee", "atleastone", "at-least-once"),
    ("preflight", "require", "required"),
    ("preflight", "warning", "warn"),
    ("kafka.acks", "ALL", "all"),
    ("kafka.acks", "al", "all"),
    ("kafka.compression.type", "lz", "lz4"),
    ("kafka.compression.type", "zstandard", "zstd"),
    ("kafka.compression.type", "GZIP", "gzip"),
    ("kafka.compression.type", "snapy", "snappy"),
    ("kafka.compression.type", "uncompressed", "none"),
    ("kafka.compression.type", "brotli", None),
    ("kafka.security.protocol", "SASL-SSL", "SASL_SSL"),
    ("kafka.security.protocol", "SASLSSL", "SASL_SSL"),
    ("kafka.security.protocol", "SASL_TLS", "SASL_SSL"),
    ("kafka.security.protocol", "TLS", "SSL"),
    ("kafka.security.protocol", "PLAIN_TEXT", "PLAINTEXT"),
    ("kafka.security.protocol", "PLAIN", "PLAINTEXT"),
    ("kafka.sasl.mechanism", "SCRAM-SHA512", "SCRAM-SHA-512"),
    ("kafka.sasl.mechanism", "SCRAM_SHA_256", "SCRAM-SHA-256"),
    ("kafka.sasl.mechanism", "OAUTH", "OAUTHBEARER"),
    ("kafka.sasl.mechanism", "PLAINN", "PLAIN"),
    ("kafka.sasl.mechanism", "KERBEROS", "GSSAPI"),
    ("kafka.sasl.mechanism", "DIGEST-MD5", None),
    ("kafka.ssl.endpoint.identification.algorithm", "http", "https"),
    ("kafka.sasl.mechanism", "${env:MECHANISM}", None),
    ("kafka.ssl.truststore.type", "pem", "PEM"),
    ("kafka.ssl.truststore.type", "P12", "PKCS12"),
    ("kafka.ssl.keystore.type", "PKCS-12", "PKCS12"),
    ("kafka.client.dns.lookup", "use_all_dns_ip", "use_all_dns_ips"),
    ("kafka.metadata.recovery.strategy", "re-bootstrap", "REBOOTSTRAP"),
    ("kafka.enable.idempotence", "ture", "true"),
    ("kafka.enable.idempotence", "yes", "true"),
    ("kafka.enable.idempotence", "0", "false"),
    ("kafka.partitioner.ignore.keys", "flase", "false"),
    ("kafka.linger.ms", "5ms", "5"),
    ("kafka.linger.ms", "1s", "1000"),
    ("kafka.linger.ms", "soon", None),
    ("kafka.request.timeout.ms", "30 s", "30000"),
    ("kafka.delivery.timeout.ms", "2min", "120000"),
    ("kafka.delivery.timeout.ms", "100000000000", None),
    ("kafka.batch.size", "256KB", "262144"),
    ("kafka.batch.size", "1_000", "1000"),
    ("kafka.buffer.memory", "64 MiB", "67108864"),
    ("kafka.buffer.memory", "64MB", "67108864"),
    ("kafka.max.request.size", "1,000,000", "1000000"),
    ("kafka.max.request.size", "4GB", None),
    ("kafka.send.buffer.bytes", "128k", "131072"),
    ("kafka.retries", "many", None),
    ("kafka.metadata.max.idle.ms", "1", None),
    ("kafka.sasl.login.refresh.window.factor", "2", None),
    ("kafka.sasl.login.connect.timeout.ms", "10s", "10000"),
    ("kafka.bootstrap.servers", "SSL://a:1", None),
    ("commitLogTopic", "a/b", None),
    ("txnVersion", "v1", None),
    ("kafka.partitioner.class", "RoundRobinPartitoner", "RoundRobinPartitioner"),
    ("kafka.partitioner.class", "consistent-random", "consistent_random"),
]


def wrong_values() -> list[Wrong]:
    found = []
    for name, value, meant in VALUES:
        java = name.removeprefix("kafka.")
        found.append(Wrong(f"{name}={value}", {name: value}, None, meant, (java,)))
        found.append(Wrong(f"line {java}={value}", {name: None}, f"{java}={value}", meant, (java,)))
    return found


#: Names that are somebody else's, and a part of the sentence that helps.
FOREIGN = [
    ("key.serializer", "keys are serialized with ByteArraySerializer"),
    ("value.serializer", "value are serialized with ByteArraySerializer"),
    ("header.serializer", "cast the column"),
    ("schema.registry.basic.auth.user.info", "schema registry"),
    ("specific.avro.reader", "schema registry"),
    ("apicurio.registry.url", "schema registry"),
    ("errors.retry.timeout", "kafka.delivery.timeout.ms"),
    ("errors.retry.delay.max.ms", "errors.tolerance=all"),
    ("key.converter", "Kafka Connect"),
    ("databricks.serviceCredential", "awsCredentialsProvider"),
    ("maxRatePerSecond", "set maxRecordsPerSecond, or a producer quota"),
    ("processing.guarantee", "deliveryGuarantee=exactly-once"),
    ("sink.delivery-guarantee", "deliveryGuarantee"),
    ("group.id", "Kafka consumer"),
    ("startingOffsets", "Kafka source"),
    ("bootstrap.controllers", "admin client"),
    ("transactional.id", "deliveryGuarantee=exactly-once"),
    ("producer.override.acks", "acks"),
]
TABLE = [*misspelt_names(), *wrong_values()]


def test_each_is_an_error_and_the_right_name_comes_first(tmp_path, capsys):
    right, proposed, missed = 0, 0, []
    never = {o.name for o in PRODUCER_OPTIONS.values() if not o.suggested}
    for wrong in TABLE:
        error = wrong.error(tmp_path)
        text = f"{error.message} {error.hint}"
        assert "\n" not in error.message, wrong
        assert error.hint, wrong
        for name in wrong.names:
            assert name in text, (wrong, text)
        found = PROPOSED.search(error.hint or "")
        first = None if found is None else found[1]
        assert first is None or first.removeprefix("kafka.") not in never, (wrong, text)
        if wrong.meant is not None:
            proposed += 1
            right += first == wrong.meant
            missed += [] if first == wrong.meant else [f"{wrong.what}: {text}"]
    with capsys.disabled():
        print(
            f"\nwrong configurations: {len(TABLE)}, each an error; the right name or value first"
            f" in {right} of {proposed} ({right / proposed:.1%})"
        )
    assert len(TABLE) >= 200
    assert right >= ENOUGH * proposed, "\n".join(missed)


@pytest.mark.parametrize(("name", "says"), [*FOREIGN, *((f"kafka.{n}", s) for n, s in FOREIGN)])
def test_a_name_of_somebody_else_gets_the_sentence_that_helps(name, says):
    with pytest.raises(ConfigError) as caught:
        parse_sink_config(GOOD | {name: "x"})
    assert says in f"{caught.value.message} {caught.value.hint}"
    assert "did you mean" not in caught.value.hint


@pytest.mark.parametrize(
    "ask",
    [
        lambda: Interceptors.check(["io.confluent.monitoring.MonitoringInterceptor"]),
        lambda: own_partitioner.check("com.example.OurPartitioner"),
        lambda: serializer(
            "io.confluent.kafka.serializers.KafkaAvroSerializer", "value.serializer"
        ),
        lambda: import_paths.make("org.example.Provider", "sasl.login.callback.handler.class"),
    ],
    ids=["interceptor", "partitioner", "serializer", "login handler"],
)
def test_a_class_of_the_jvm_gets_the_sentence_that_helps(ask):
    with pytest.raises(ConfigError) as caught:
        ask()
    assert "a class of the JVM can't run in Python workers" in caught.value.hint


def test_a_missing_python_class_is_not_taken_for_a_jvm_class():
    for path in ("our.partitioners:Mine", "io.BytesJO", "com.example.function"):
        with pytest.raises(ConfigError) as caught:
            import_paths.find(path, "partitioner.class")
        assert "the module must be importable" in caught.value.hint


def test_a_removed_option_names_its_successor_as_the_user_writes_it(tmp_path):
    removed, successor = "Removed from Kafka after 0.10; use ", "request.timeout.ms"
    with pytest.raises(ConfigError) as caught:
        parse_sink_config(GOOD | {"timeout.ms": "1"})
    assert caught.value.hint == f"{removed}kafka.{successor}"
    (warning,) = parse_sink_config(GOOD | {"kafka.timeout.ms": "1"}).warnings
    assert f"'kafka.timeout.ms' has no effect: {removed}kafka.{successor}." in warning
    (warning,) = parse_producer_config({"bootstrap.servers": "h:1", "timeout.ms": "1"}).warnings
    assert f"'timeout.ms' has no effect: {removed}{successor}." in warning
    path = tmp_path / "client.properties"
    path.write_text("timeout.ms=1\n")
    (warning,) = parse_sink_config(GOOD | {"configFile": str(path)}).warnings
    assert f"'timeout.ms' (in {path}) has no effect: {removed}{successor}." in warning


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (
            {"kafka.compression.level": "5"},
            "use kafka.compression.gzip.level, kafka.compression.lz4.level or kafka.compression",
        ),
        ({"kafka.request.retries": "5"}, "use kafka.retries"),
        ({"kafka.sasl.login.class": "x"}, "in kafka.sasl.login.callback.handler.class"),
        ({"kafka.sasl.oauthbearer.assertion.file": "x"}, "in kafka.sasl.login.callback"),
    ],
)
def test_each_name_in_a_hint_is_as_the_user_writes_it(options, names):
    with pytest.raises(ConfigError) as caught:
        parse_sink_config(GOOD | options)
    assert names in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        parse_producer_config({name.removeprefix("kafka."): v for name, v in
                               (GOOD | options).items() if name != "topic"})  # fmt: skip
    assert "kafka." not in caught.value.hint
    assert names.replace("kafka.", "") in caught.value.hint


@pytest.mark.parametrize("value", ["exactly_once", "EXACTLY-ONCE", "exactlyOnce", "Exactly Once"])
def test_a_guarantee_is_understood_however_it_is_spelt(value):
    listed = SINK_OPTIONS["deliveryGuarantee"].rule.words
    assert "a hyphen may be an underscore, or missing" in listed
    assert parse_sink_config(GOOD | {"deliveryGuarantee": value}).is_exactly_once
    least = parse_sink_config(GOOD | {"deliveryGuarantee": "atLeastOnce"})
    assert least == parse_sink_config(GOOD | {"deliveryGuarantee": "at-least-once"})


def test_options_of_the_producer_alone_are_suggested_to_it_only(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("transactionl.id=x\n")
    for options in ({"transactionl.id": "x"}, {"configFile": str(path)}):
        with pytest.raises(ConfigError) as caught:
            parse_producer_config({"bootstrap.servers": "a:1"} | options)
        assert caught.value.hint == "did you mean transactional.id?"


WAYS_IN = ["acsk=1", "linger.ms=5s", "group.idd=g", "ssl.truststore.location=/ca", "acks=ALL",
           "compression.codec=lz4", "sasl.mechanism=SCRAM-SHA512"]  # fmt: skip


@pytest.mark.parametrize("line", WAYS_IN)
def test_every_way_in_gives_the_same_answer(line, tmp_path):
    """As an option of the sink, of KafkaProducer, and as a line of a file for either and kprod."""
    name, _, value = line.partition("=")
    path = tmp_path / "client.properties"
    path.write_text(f"bootstrap.servers=a:1\n{line}\n")
    answers = []
    for ask in (
        lambda: parse_sink_config(GOOD | {f"kafka.{name}": value}),
        lambda: parse_sink_config({"configFile": str(path)}),
        lambda: parse_producer_config({"bootstrap.servers": "a:1", name: value}),
        lambda: ProducerOptions.of({"bootstrap.servers": "a:1", name: value}),
        lambda: ProducerOptions.of({"configFile": str(path)}),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        answers.append(caught.value.one_line())
    told = CliRunner().invoke(app, ["txn", "list", "p", "-c", str(path)])
    assert told.exit_code == 2
    answers.append(told.stderr.removeprefix("kprod: ").strip())
    bare = {answer.replace("kafka.", "").replace(f" (in {path})", "") for answer in answers}
    assert len(bare) == 1, bare
