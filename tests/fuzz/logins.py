"""SASL exchanges with a broker that says anything, and the texts that logins are made of."""

from __future__ import annotations

import base64
import random
import struct
from collections.abc import Callable

from spark_kafka_sink.base.errors import ConfigError, KafkaError
from spark_kafka_sink.base.security.jaas_config import parse_jaas_config
from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.auth.aws_msk_iam import AwsKeys, AwsMskIamMechanism, Keys
from spark_kafka_sink.network.auth.oauth_token import Token, expiry_of
from spark_kafka_sink.network.auth.sasl_authenticator import (
    SaslClientAuthenticator,
)
from spark_kafka_sink.network.auth.sasl_mechanism import SaslMechanism
from spark_kafka_sink.network.auth.sasl_oauthbearer import OAuthBearerMechanism
from spark_kafka_sink.network.auth.sasl_plain import PlainMechanism
from spark_kafka_sink.network.auth.sasl_scram import ScramMechanism
from spark_kafka_sink.protocol.frames import MIN_RESERVED_CORRELATION_ID
from tests.fuzz.mutate import mutated, refusal

_MECHANISMS: tuple[Callable[[], SaslMechanism], ...] = (
    lambda: ScramMechanism("SCRAM-SHA-256", "u", Password("p"), nonce=lambda: "abc"),
    lambda: PlainMechanism("u", Password("p")),
    lambda: OAuthBearerMechanism(Token(Password("t"))),
    lambda: AwsMskIamMechanism(Keys(AwsKeys("a", "b"), "eu-west-1"), "h"),
)
_TOKENS = (
    b"r=abcX,s=W22Z,i=4096",
    b"r=abcX,s=W22Z,i=-1",
    b"",
    b'{"version":"2020_10_22"}',
    b'{"status":"invalid_token"}',
    b"v=AAAA",
    b"e=x",
)
_LIFETIMES = (0, 5, 1000, 2**62, 2**63 - 1, -1)


def exchanges(rng: random.Random) -> str:
    """KafkaError or ConnectionError, on one line, and never an exchange without an end."""
    mechanism = rng.choice(_MECHANISMS)()
    client = SaslClientAuthenticator("b:1", "c", encrypted=True)
    client.start(mechanism)
    number, version = MIN_RESERVED_CORRELATION_ID, rng.choice((0, 1, 2))

    def say(body: bytes, chance: float) -> bytes | None:
        nonlocal number
        answer = struct.pack(">i", number) + body
        number += 1
        return client.receive(
            memoryview(mutated(rng, answer) if rng.random() < chance else answer), 0
        )

    name = mechanism.name.encode()

    def talk() -> None:
        say(struct.pack(">hihhhhhh", 0, 2, 17, 0, 1, 36, 0, version), 0.1)
        say(struct.pack(">hih", 0, 1, len(name)) + name, 0.1)
        for _ in range(20):
            if say(_authenticated(rng, version), 0.3) is None:
                return
        raise AssertionError("an exchange of 20 rounds")

    error = refusal(talk, KafkaError, ConnectionError)
    if error is not None:
        assert "\n" not in getattr(error, "message", str(error))
    return f"{mechanism.name} {'authenticated' if error is None else type(error).__name__}"


def _authenticated(rng: random.Random, version: int) -> bytes:
    token = rng.choice((*_TOKENS, rng.randbytes(20)))
    code = struct.pack(">h", rng.choice((0, 0, 0, 0, 58, 7, -1)))
    lifetime = struct.pack(">q", rng.choice(_LIFETIMES))
    if version < 2:
        body = code + b"\xff\xff" + struct.pack(">i", len(token)) + token
        return body + lifetime if version else body
    return b"\0" + code + b"\0" + bytes([len(token) + 1]) + token + lifetime + b"\0"


_JAAS = b'org.x.ScramLoginModule required username="a" password="b\\"c" /* x */ k=v;'
_PROPERTIES = b"a=b\\\n c\nx\\:y : z\\u0041\n#c\n"


def texts(rng: random.Random) -> str:
    """Login modules, properties files and tokens: read or refused."""
    jaas = mutated(rng, _JAAS).decode("latin-1")
    error = refusal(lambda: parse_jaas_config(jaas), ConfigError)
    parse_properties(mutated(rng, _PROPERTIES).decode("latin-1"))
    claims = base64.urlsafe_b64encode(mutated(rng, b'{"exp":123456789}')).decode().rstrip("=")
    odd = refusal(lambda: expiry_of(f"a.{claims}.c", "it"), KafkaError)
    return f"{'refused' if error else 'read'}, {'an odd time' if odd else 'a time or none'}"
