"""The certificate matrix: every way in which TLS between us and a broker can be right or wrong.

One table. Each row goes to a listener of a real broker (the one of TLS 1.1 to OpenSSL: no JVM
speaks that any more) and either arrives, or ends at once with a text that names what is wrong.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch
from tests.real_kafka import AT_ONCE_S
from tests.secure_kafka import WILDCARD_HOST, acl

#: What somebody has to mend is told at once; what could mend itself has max.block.ms.
BLOCK_MS = 60_000


@dataclass(frozen=True)
class Row:
    """``listener``: of ``tests/secure_kafka.py``; ``options``: beside the truststore, where a value
    may name a file of the fixture; ``text``: what the error says, None when the row arrives.
    """

    listener: str
    text: tuple[str, ...] | None = None
    options: dict[str, str] = field(default_factory=dict)
    protocol: str = "SSL"
    #: The broker hangs up without a word, as one does that restarts: nobody can tell at once.
    silent: bool = False


TRUST, KEYS = "ssl.truststore.location", "ssl.keystore.location"

MATRIX = {
    "good": Row("GOOD"),
    "wrong CA": Row("GOOD", ("a CA that is not trusted", TRUST), {TRUST: "other_ca"}),
    "expired": Row("EXPIRED", ("certificate has expired", "have it renewed")),
    "not yet valid": Row("NOTYET", ("is not valid yet", "clocks")),
    "wrong host": Row("OTHERHOST", ("does not name this address", "subjectAltName")),
    "address in the certificate (IP SAN)": Row("MUTUAL", None, {KEYS: "client_key"}),
    "wildcard": Row("WILDCARD"),
    "an intermediate, its root trusted": Row("INTERMEDIATE"),
    "an intermediate, only that trusted": Row("INTERMEDIATE", None, {TRUST: "intermediate_ca"}),
    "only the broker's own trusted": Row("INTERMEDIATE", None, {TRUST: "own_certificate"}),
    "another broker's own trusted": Row(
        "GOOD", ("a CA that is not trusted", TRUST), {TRUST: "own_certificate"}
    ),
    "self-signed": Row("SELFSIGNED", ("a CA that is not trusted", TRUST)),
    "no client certificate": Row("MUTUAL", ("client certificate", KEYS)),
    "client certificate of a stranger": Row(
        "MUTUAL", ("does not accept our client certificate",), {KEYS: "stranger_key"}
    ),
    "revoked user": Row(
        "SSL", ("TOPIC_AUTHORIZATION_FAILED", "the ACL WRITE on the topic"), {KEYS: "bob"}
    ),
    "TLS 1.1 only": Row("TLS11", ("no TLS version in common", "ssl.enabled.protocols")),
    "TLS to a plaintext port": Row("PLAINTEXT", ("is it a PLAINTEXT", "port"), silent=True),
    "plaintext to a TLS port": Row(
        "GOOD", ("the port speaks TLS", "security.protocol to SSL"), protocol="PLAINTEXT"
    ),
}


@contextmanager
def tls_1_1_server(key: str) -> Iterator[str]:
    """A server that speaks TLS 1.1 and nothing newer; its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        context.maximum_version = context.minimum_version = ssl.TLSVersion.TLSv1_1
    served = []

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(5)
            try:
                context.wrap_socket(connection, server_side=True).close()
                served.append("spoken")
            except OSError:
                served.append("refused")
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
    assert served, "nobody came"
    assert "spoken" not in served, "TLS 1.1 was spoken"


@contextmanager
def address_of(row, secure) -> Iterator[str]:
    if row.listener == "TLS11":
        key = secure.cluster.security.broker_key
        with tls_1_1_server(str(key)) as address:
            yield address
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
    if row.protocol == "PLAINTEXT":
        return {}
    ours = row.listener in ("SSL", "TLS11")
    files = {TRUST: secure.cluster.security.ca if ours else secure.ca}
    for name, value in row.options.items():
        files[name] = secure.cluster.security.client_keys[value] if ours else getattr(secure, value)
    return {"security.protocol": "SSL"} | {name: str(path) for name, path in files.items()}


def write(secure, row, address, topic):
    block = 2_000 if row.silent else BLOCK_MS
    producer = KafkaProducer(config(address, options_of(row, secure) | {"max.block.ms": block}))
    try:
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch([b"c4nary-row"])])
    finally:
        producer.close(0 if row.text else 10_000)


@pytest.mark.parametrize("name", MATRIX)
def test_the_certificate_matrix(secure_kafka, consume, name):
    row = MATRIX[name]
    topic = secure_kafka.kafka.unique_topic("matrix")
    read = {"bootstrap": secure_kafka.kafka.bootstrap}
    with address_of(row, secure_kafka) as address:
        if row.text is None:
            write(secure_kafka, row, address, topic)
            assert consume(topic, **read).values == [b"c4nary-row"]
            return
        if name == "revoked user":
            # What the row is about is the right that is gone, not one that never was.
            with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE")):
                write(secure_kafka, row, address, topic)
        began = time.monotonic()
        other = secure_kafka.kafka.unique_topic("matrix")
        with (
            acl(secure_kafka, "bob", ("TOPIC", other, "WRITE")),
            pytest.raises(KafkaError) as error,
        ):
            write(secure_kafka, row, address, topic)
        seconds = time.monotonic() - began
    text = str(error.value)
    for part in row.text:
        assert part in text, text
    assert address in text or name == "revoked user", text
    assert "c4nary" not in text
    assert "PRIVATE KEY" not in text
    assert seconds < AT_ONCE_S, "it can only be mended by somebody, so nobody should wait"
