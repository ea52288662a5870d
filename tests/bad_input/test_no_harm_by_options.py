"""A table of wrong configurations: none of them makes a write less safe without a word.

Each row is what it is given with (``WITH``), the options, and the result: ``refused`` or
``warned`` with a code and a name, or ``harmless`` with the reason. ``FILE`` is the text of a
configFile. Nothing is connected to; all of it happens before a row is written.
"""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path

import pytest
import trustme
from pyspark.sql.datasource import CaseInsensitiveDict

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.own_code import check_own_code
from spark_kafka_sink.datasource.exactly_once.transaction_plan import prefix_of
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder

TABLE = Path(__file__).with_name("wrong_configurations.jsonl")
ROWS = [json.loads(line) for line in TABLE.read_text().splitlines()]
CANARY = "canary9"
GOOD = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}
TLS = {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "<dir>/ca.pem"}
SASL = TLS | {"kafka.security.protocol": "SASL_SSL"}
WITH = {
    "": {},
    "tls": TLS,
    "sasl": SASL,
    "scram": SASL | {"kafka.sasl.mechanism": "SCRAM-SHA-512"},
    "oauth": SASL | {"kafka.sasl.mechanism": "OAUTHBEARER"},
    "aws": SASL | {"kafka.sasl.mechanism": "AWS_MSK_IAM"},
    "kerberos": SASL | {"kafka.sasl.mechanism": "GSSAPI"},
    "user": {"kafka.sasl.username": "a", "kafka.sasl.password": "${env:PWV}"},
    "endpoint": {"kafka.sasl.oauthbearer.token.endpoint.url": "https://idp/t"},
    "once": {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "p"},
}
APACHE = "org.apache.kafka.common.security"
SHORT = {
    "<PLAIN>": f"{APACHE}.plain.PlainLoginModule required",
    "<SCRAM>": f"{APACHE}.scram.ScramLoginModule required",
    "<OAUTH>": f"{APACHE}.oauthbearer.OAuthBearerLoginModule required",
    "<IAM>": "software.amazon.msk.auth.iam.IAMLoginModule required",
    "<KRB>": "com.sun.security.auth.module.Krb5LoginModule required",
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """With the files that rows name."""
    made = tmp_path_factory.mktemp("wrong")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(made / "ca.pem")
    ca.issue_cert("b").private_key_and_cert_chain_pem.write_to_path(made / "k.pem")
    (made / "pw").write_text("pw\n")
    (made / "empty").write_text("")
    return made


def options_of(given: str, options: dict[str, str], directory: Path) -> dict[str, str]:
    found = dict(GOOD)
    for one in given.split("+"):
        found |= WITH[one]
    words, texts = SHORT | {"<dir>": str(directory)}, {}
    for name, text in (found | options).items():
        texts[name] = re.sub("<[a-zA-Z]+>", lambda short: words[short[0]], text)
    if "FILE" in texts:
        file = directory / "client.properties"
        file.write_text(texts.pop("FILE"))
        texts["configFile"] = str(file)
    return texts


def planned(options: dict[str, str]) -> SinkConfig:
    """As far as a write comes before it sends anything: parsed, planned, and a client made."""
    config = parse_sink_config(CaseInsensitiveDict(options))
    if config.is_exactly_once:
        prefix_of(config, streaming=False)
    check_own_code(config, on_driver=True)
    security = resolve(dict(config.producer.security))
    ChannelBuilder.of(config.producer.security_protocol, security, "x").close()
    return config


def what_is_wrong(row, directory) -> str:
    """Why the row is not what the table says, or nothing."""
    given, options, expected = row
    outcome, _, rest = expected.partition(" ")
    try:
        config = planned(options_of(given, options, directory))
    except ConfigError as error:
        code, _, name = rest.partition(" ")
        text = str(error)
        if outcome != "refused" or f"[{code}]" not in text or name.lower() not in text.lower():
            return f"refused: {text}"
        if CANARY in text:
            return f"shows the secret: {text}"
        in_an_option = CANARY in "".join(v for k, v in options.items() if k != "FILE")
        if in_an_option and "replace it" not in text:
            return f"does not say that Spark has the secret: {text}"
        return ""
    if outcome == "harmless:" and rest:
        return f"warned: {config.warnings}" if config.warnings else ""
    code, _, name = rest.partition(" ")
    if outcome == "warned" and any(
        f"[{code}]" in w and name.lower() in w.lower() for w in config.warnings
    ):
        return ""
    return f"taken, with {config.warnings}"


def test_each_is_refused_warned_of_or_harmless(directory, monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("PWV", "pw")
    wrong = [(row, found) for row in ROWS if (found := what_is_wrong(row, directory))]
    assert wrong == []


def test_the_table_is_large_and_says_each_thing_once():
    keys = [json.dumps(row[:2], sort_keys=True) for row in ROWS]
    assert len(keys) == len(set(keys)) > 400
    assert {row[2].partition(" ")[0] for row in ROWS} == {"refused", "warned", "harmless:"}


#: Values that make something less safe, or might; each is tried beside each other one.
WEAKER = [
    ("kafka.acks", "0"),
    ("kafka.acks", "1"),
    ("kafka.acks", "all"),
    ("kafka.retries", "0"),
    ("kafka.enable.idempotence", "false"),
    ("kafka.enable.idempotence", "true"),
    ("kafka.max.in.flight.requests.per.connection", "6"),
    ("kafka.client.dns.lookup", "resolve_canonical_bootstrap_servers_only"),
    ("kafka.ssl.endpoint.identification.algorithm", ""),
    ("kafka.ssl.endpoint.identification.algorithm", "https"),
    ("kafka.ssl.enabled.protocols", "TLSv1.2"),
    ("kafka.ssl.truststore.location", "/ca.pem"),
    ("kafka.ssl.truststore.certificates", "${file:/ca.pem}"),
    ("kafka.security.protocol", "PLAINTEXT"),
    ("kafka.security.protocol", "SSL"),
    ("kafka.security.protocol", "SASL_PLAINTEXT"),
    ("kafka.security.protocol", "SASL_SSL"),
    ("kafka.sasl.mechanism", "PLAIN"),
    ("kafka.sasl.mechanism", "SCRAM-SHA-256"),
    ("kafka.sasl.mechanism", "AWS_MSK_IAM"),
    ("kafka.sasl.mechanism", "OAUTHBEARER"),
    ("kafka.sasl.jaas.config", "${env:JAAS}"),
    ("kafka.bootstrap.servers", "SSL://b:9092"),
    ("kafka.bootstrap.servers", "https://b:9092"),
    ("kafka.bootstrap.servers", "PLAINTEXT://b:9092"),
    ("deliveryGuarantee", "exactly-once"),
    ("deliveryGuarantee", "at-least-once"),
    ("deliveryGuarantee", "none"),
    ("preflight", "off"),
    ("verifyReplays", "false"),
    ("kafka.transaction.timeout.ms", "1000"),
    ("kafka.compression.type", "none"),
    ("kafka.max.block.ms", "0"),
]
BASES = {
    "": {},
    "tls": {"kafka.security.protocol": "SSL"},
    "scram": {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
    | WITH["user"],
    "token": {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
    | {"kafka.sasl.password": "${env:PWV}"},
    "once": WITH["once"],
}


def weaknesses(config: SinkConfig, options: dict[str, str]) -> set[str]:
    """What is less safe than by default, and than its name says, with the word of a warning."""
    producer, found = config.producer, set()
    security, protocol = dict(producer.security), producer.security_protocol
    if protocol.endswith("SSL"):
        if security.get("ssl.endpoint.identification.algorithm") == "":
            found.add("KP0153 ssl.endpoint.identification.algorithm")
        if producer.client_dns_lookup != "use_all_dns_ips":
            found.add("KP0153 client.dns.lookup")
    elif security and protocol == "PLAINTEXT":
        found.add("an error")
    elif security and security.get("sasl.mechanism") not in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        found.add("KP0153 SASL_PLAINTEXT")
    if options["kafka.bootstrap.servers"][:5] in ("SSL:/", "https") and "SSL" not in protocol:
        found.add("an error")
    if options.get("deliveryGuarantee") != "none" and (
        producer.acks != -1 or producer.retries == 0 or not producer.enable_idempotence
    ):
        found.add("KP0152 deliveryGuarantee is none")
    if config.is_exactly_once and producer.transaction_timeout_ms < 60_000:
        found.add("KP0154 transaction.timeout.ms")
    return found


@pytest.mark.parametrize("base", BASES)
def test_no_pair_of_options_is_weaker_without_a_word(base):
    met, silent = set(), []
    for pair in combinations(WEAKER, 2):
        options = GOOD | BASES[base] | dict(pair)
        try:
            config = parse_sink_config(options)
        except ConfigError:
            continue
        for weakness in weaknesses(config, options):
            code, _, word = weakness.partition(" ")
            met.add(code)
            if not any(f"[{code}]" in w and word in w for w in config.warnings):
                silent.append((weakness, pair))
    assert silent == []
    assert met >= {"KP0152" if base != "once" else "KP0154"}
