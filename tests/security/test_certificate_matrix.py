"""The certificate matrix: every way in which TLS between us and a broker can be right or wrong, and
every listener that is another one than was meant.

One table. Each row goes to a listener of a real broker (the one of TLS 1.1 to OpenSSL: no JVM
speaks that any more) and either arrives, or ends at once with a text that names what is wrong; and
the first red row of ``kprod check`` names it, too.
"""

from __future__ import annotations

import socket
import ssl
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch
from tests.network.fake_registry import FakeRegistry, same
from tests.real_kafka import AT_ONCE_S
from tests.secure_kafka import WILDCARD_HOST
from tests.security.check_rows import assert_named, steps_of

#: What somebody has to mend is told at once; what could mend itself has max.block.ms.
BLOCK_MS = 60_000


@dataclass(frozen=True)
class Row:
    """``listener``: of ``tests/secure_kafka.py``; ``text``: what the error says, None when the row
    arrives; ``options``: beside the truststore and a wrong password, where the value of a store
    names a file of the fixture; ``step``: the row of ``kprod check`` that has the first text (of
    TLS: all of them).
    """

    listener: str
    text: tuple[str, ...] | None = None
    options: dict[str, str] = field(default_factory=dict)
    protocol: str = "SSL"
    step: str = "TLS"
    #: The broker hangs up without a word, as one does that restarts: nobody can tell at once.
    silent: bool = False


TRUST, KEYS = "ssl.truststore.location", "ssl.keystore.location"
VERSIONS = "ssl.enabled.protocols"
CIPHER = {VERSIONS: "TLSv1.2", "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
UNTRUSTED = ("a CA that is not trusted", TRUST)

MATRIX = {
    "good": Row("GOOD"),
    "one cipher": Row("GOOD", None, CIPHER),
    "wrong CA": Row("GOOD", UNTRUSTED, {TRUST: "other_ca"}),
    "expired": Row("EXPIRED", ("certificate has expired", "have it renewed")),
    "not yet valid": Row("NOTYET", ("is not valid yet", "clocks")),
    "wrong host": Row("OTHERHOST", ("does not name this address", "subjectAltName")),
    "wrong host, not looked at": Row(
        "OTHERHOST", None, {"ssl.endpoint.identification.algorithm": ""}
    ),
    "address in the certificate (IP SAN)": Row("MUTUAL", None, {KEYS: "client_key"}),
    "wildcard": Row("WILDCARD"),
    "an intermediate, its root trusted": Row("INTERMEDIATE"),
    "an intermediate, only that trusted": Row("INTERMEDIATE", None, {TRUST: "intermediate_ca"}),
    "only the broker's own trusted": Row("INTERMEDIATE", None, {TRUST: "own_certificate"}),
    "another broker's own trusted": Row("GOOD", UNTRUSTED, {TRUST: "own_certificate"}),
    "self-signed": Row("SELFSIGNED", UNTRUSTED),
    "no client certificate": Row("MUTUAL", ("client certificate", KEYS)),
    "client certificate of a stranger": Row(
        "MUTUAL", ("does not accept our client certificate",), {KEYS: "stranger_key"}
    ),
    "TLS 1.2 only": Row("OLDTLS"),
    "TLS 1.1 only": Row("TLS11", ("no TLS version in common", VERSIONS)),
    "no TLS version in common": Row(
        "OLDTLS", ("no TLS version in common", VERSIONS), {VERSIONS: "TLSv1.3"}
    ),
    "TLS to a plaintext port": Row("PLAINTEXT", ("is it a PLAINTEXT", "port"), silent=True),
    "plaintext to a TLS port": Row(
        "GOOD", ("security.protocol to SSL", "the port speaks TLS"), {}, "PLAINTEXT", "ApiVersions"
    ),
    "plaintext to a SASL port": Row(
        "SASL_PLAINTEXT",
        ("does it require SASL?", "at the first request after ApiVersions", "security.protocol"),
        {}, "PLAINTEXT", "SASL", silent=True,
    ),
    "SASL to a plaintext port": Row(
        "PLAINTEXT", ("does not require SASL", "type PLAINTEXT?"), {}, "SASL_PLAINTEXT", "SASL"
    ),
    "SASL to a port of TLS alone": Row(
        "GOOD", ("does not require SASL", "type SSL?"), {}, "SASL_SSL", "SASL"
    ),
    "SASL without TLS to a TLS port": Row(
        "SASL_SSL", ("the port speaks TLS", "SASL_SSL"), {}, "SASL_PLAINTEXT", "SASL"
    ),
    "SASL with TLS to a port without it": Row(
        "SASL_PLAINTEXT", ("is it a PLAINTEXT or SASL_PLAINTEXT port?",), {}, "SASL_SSL",
        silent=True,
    ),
    "a mechanism that is not offered": Row(
        "SASL_PLAINTEXT",
        ("does not offer this mechanism", "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"),
        {"sasl.mechanism": "AWS_MSK_IAM"}, "SASL_PLAINTEXT", "SASL",
    ),
} | {
    f"{user} with a wrong password by {mechanism}": Row(
        "SASL_SSL", (mechanism, "rejects us", "password"),
        {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": "c4nary-password"},
        "SASL_SSL", "SASL",
    )
    for user in ("alice", "nobody")
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
}  # fmt: skip


@contextmanager
def address_of(row, secure) -> Iterator[str]:
    if row.listener == "TLS11":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(secure.cluster.security.broker_key)
        context.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
            context.maximum_version = context.minimum_version = ssl.TLSVersion.TLSv1_1
        with FakeRegistry(same(200, b""), tls=context) as server:
            yield f"127.0.0.1:{server.port}"
    elif row.listener == "WILDCARD":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "getaddrinfo", _resolver(socket.getaddrinfo))
            port = secure.bootstrap("WILDCARD").rpartition(":")[2]
            yield f"{WILDCARD_HOST}:{port}"
    else:
        yield secure.bootstrap(row.listener)


def _resolver(real):
    """The name server of brokers.example: the one host has this machine's address."""

    def getaddrinfo(host, *arguments, **options):
        name = host.decode() if isinstance(host, bytes) else host
        return real("127.0.0.1" if name == WILDCARD_HOST else host, *arguments, **options)

    return getaddrinfo


def options_of(row, secure):
    found = {"security.protocol": row.protocol} | row.options
    if row.protocol.startswith("SASL") and not row.options:
        found["sasl.mechanism"] = "PLAIN"
        found |= {"sasl.username": "alice", "sasl.password": "c4nary-password"}
    if row.protocol.endswith("SSL"):
        ours = row.listener in ("SASL_SSL", "TLS11")
        found[TRUST] = str(secure.cluster.security.ca if ours else secure.ca)
        stores = {TRUST, KEYS} & row.options.keys()
        found |= {name: str(getattr(secure, row.options[name])) for name in stores}
    return found


def write(address, options, topic, rows):
    producer = KafkaProducer(config(address, options))
    try:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch(rows)])
    finally:
        producer.close(10_000)


@pytest.mark.parametrize("name", MATRIX)
def test_the_certificate_matrix(secure_kafka, consume, monkeypatch, name):
    row, topic = MATRIX[name], secure_kafka.kafka.unique_topic("matrix")
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "c4nary-key")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    options = options_of(row, secure_kafka)
    with address_of(row, secure_kafka) as address:
        if row.text is None:
            write(address, options, topic, [b"row"])
            assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"row"]
            return
        began = time.monotonic()
        bounded = options | {"max.block.ms": 4_000 if row.silent else BLOCK_MS}
        with pytest.raises(KafkaError) as raised:
            write(address, bounded, topic, [b"c4nary-row"])
        seconds = time.monotonic() - began
        steps = steps_of(address, options, 60_000)
    text = str(raised.value)
    for part in (*row.text, address):
        assert part in text, text
    assert "c4nary" not in text
    assert "PRIVATE KEY" not in text
    assert seconds < AT_ONCE_S, "it can only be mended by somebody, so nobody should wait"
    assert isinstance(raised.value, AuthenticationError) != row.silent
    for part in row.text if row.step == "TLS" else row.text[:1]:
        assert_named(steps, row.step, part)
    assert "c4nary" not in str(steps)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_rows_of_all_sizes_arrive_over_tls(secure_kafka, consume, version):
    rows = [b"%07d" % i + b"x" * (i % 3000) for i in range(5_000)]
    rows.append(bytes(range(256)) * 3_500)
    topic = secure_kafka.kafka.unique_topic("tls", 3)
    options = options_of(Row("GOOD", None, {VERSIONS: version}), secure_kafka)
    write(secure_kafka.bootstrap("GOOD"), options, topic, rows)
    assert sorted(consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values) == sorted(rows)
