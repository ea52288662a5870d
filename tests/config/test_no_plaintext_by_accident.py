"""Options with a ``sasl.`` value make no connection in the clear, unless asked to."""

from __future__ import annotations

import socket
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer

SCRAM = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"}
PLAIN = 'a.b.PlainLoginModule required username="u" password="p";'
#: Values that make a login whole, so that connections are reached; any option may have any.
VALUES = {
    "sasl.mechanism": ["PLAIN", "SCRAM-SHA-256", "plain", "OAUTHBEARER", "${env:MECHANISM}", ""],
    "sasl.username": ["u"],
    "sasl.password": ["p", "${env:HOME}"],
    "sasl.jaas.config": [PLAIN, "${env:JAAS_OF_THE_TEST}", ""],
    "ssl.endpoint.identification.algorithm": ["https", "", "${env:EMPTY}"],
}
SASL = [name for name in PRODUCER_OPTIONS if name.startswith("sasl.")]
OTHER = [name for name in PRODUCER_OPTIONS if name.startswith("ssl.")] + ["acks"]
PROTOCOLS = ["plaintext", "sasl_ssl", "", "TLS", " SASL_SSL ", "SASL_SLL", "${env:PROTOCOL}",
             "PLAINTEXT,SSL", "\tPLAINTEXT", "PLAIN\nTEXT"]  # fmt: skip
PROTOCOL = "security.protocol"
NAMES = [*[PROTOCOL] * 9, "Security.Protocol", "security.protocal", "securityprotocol"]


def some(names):
    """A few of these options, with values that make sense more often than not."""
    one = st.sampled_from(names).flatmap(
        lambda name: st.tuples(
            st.just(name),
            st.sampled_from([*VALUES.get(name, ["1", "true", "/x"])]) | st.text(max_size=3),
        )
    )
    return st.just({}) | st.just({}) | st.lists(one, max_size=3).map(dict)


LEGAL = ["SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT", "SSL"]
protocols = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(LEGAL * 5 + PROTOCOLS), max_size=1
)
logins = st.sampled_from(
    [
        {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"},
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN},
        {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "${env:HOME}"},
        {"sasl.jaas.config": PLAIN},
        {"sasl.mechanism": "AWS_MSK_IAM"},
        {"sasl.mechanism": "OAUTHBEARER", "sasl.password": "a.b.c"},
        *[{}] * 6,
    ]
)
given_somewhere = st.tuples(protocols, logins, some(SASL), some(OTHER)).map(
    lambda parts: {name: value for part in parts for name, value in part.items()}
)
met: Counter[str] = Counter()


def connection(way: str, options: dict[str, str], lines: dict[str, str]) -> str:
    """What a connection is with these options, and these lines of a configFile: ``refused``,
    ``encrypted``, or ``in the clear``. Made as a producer makes it, secrets looked up.
    """
    prefix = "kafka." if way == "sink" else ""
    found: dict[str, object] = {prefix + name: value for name, value in options.items()}
    found[f"{prefix}bootstrap.servers"] = "a:1"
    with tempfile.TemporaryDirectory() as directory:
        if lines:
            path = Path(directory) / "client.properties"
            escaped = [f"{n}={v.encode('unicode_escape').decode()}" for n, v in lines.items()]
            path.write_text("\n".join(escaped))
            found["configFile"] = str(path)
        try:
            config = parse_sink_config(found).producer if prefix else parse_producer_config(found)
            builder = ChannelBuilder.of(config.security_protocol, resolve(dict(config.security)))
        except ValueError:  # a ConfigError, or what else ends the making of a client
            return "refused"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = builder.build_channel(1, "localhost", "localhost:1", ours)
        builder.close()
        plain = isinstance(channel.transport, PlaintextTransportLayer)
    return "in the clear" if plain else "encrypted"


@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["sink", "producer"]), given_somewhere, given_somewhere)
@example("sink", {}, {"security.protocal": "SASL_SSL"} | SCRAM)
@example("sink", {"security.protocol": "SASL_PLAINTEXT"} | SCRAM, {})
@example("producer", {"security.protocol": "SASL_SSL"} | SCRAM, {})
@example("producer", {}, SCRAM)
@example("sink", {}, {})
def in_the_clear_only_by_the_word(way, options, lines):
    found = connection(way, options, lines)
    sasl = any(name.startswith("sasl.") for name in options | lines)
    met[f"{found}, {'with' if sasl else 'without'} sasl."] += 1
    if found != "in the clear" or not sasl:
        return
    protocol = {n.lower(): v for n, v in (lines | options).items()}["security.protocol"]
    assert "PLAINTEXT" in protocol.upper()
    assert protocol.strip().upper() == "SASL_PLAINTEXT", "PLAINTEXT alone would not use it"


def test_sasl_is_never_in_the_clear_unless_the_word_was_written():
    in_the_clear_only_by_the_word()
    for kind in ("in the clear, with sasl.", "encrypted, with sasl.", "in the clear, without sasl.",
                 "refused, with sasl."):  # fmt: skip
        assert met[kind], met
