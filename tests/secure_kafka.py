"""One secure broker for the session: every protocol and mechanism, a listener for each bad
certificate, and ACLs. Behind the fixture ``secure_kafka``.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trustme

from spark_kafka_sink.local_kafka import KafkaCluster
from tests.real_kafka import RealKafka

HOST = "127.0.0.1"
#: A name that no DNS has; a test that wants it to lead here says so to the resolver.
WILDCARD_HOST = "b-1.brokers.example"
NOW = dt.datetime.now(tz=dt.UTC)
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class SecureKafka:
    """``kafka`` is the broker by its PLAINTEXT listener, for tools; the rest is for our client.

    ``cluster.client_options(listener, mechanism, user)`` are the options to get in by SSL,
    SASL_SSL and SASL_PLAINTEXT, as ``alice`` (may do everything) or ``bob`` (nothing without ACLs).
    ``ca`` and the keys are those of the other listeners, which stand for rows of the certificate
    matrix. REAUTH is SASL_PLAINTEXT with sessions of ten seconds.
    """

    kafka: RealKafka
    cluster: KafkaCluster
    ca: Path
    other_ca: Path
    #: In the chain of INTERMEDIATE: who issued its certificate, and that one itself.
    intermediate_ca: Path
    own_certificate: Path
    client_key: Path
    stranger_key: Path

    def bootstrap(self, listener: str) -> str:
        return self.cluster.bootstrap_of(listener)


def key_file(directory: Path, name: str, certificate: trustme.LeafCert) -> Path:
    """Private key and chain in one PEM file, as Kafka's brokers and clients read it."""
    path = directory / f"{name}.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(path)
    return path


def properties(path: Path, options: Mapping[str, str]) -> Path:
    """A client's file, with its secrets in it."""
    path.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    return path


@contextmanager
def secure_broker(directory: Path) -> Iterator[SecureKafka]:
    """The broker; its bad certificates are made in ``directory``."""
    # Kafka reads keys in PKCS#8 only, and trustme writes elliptic ones otherwise.
    ca, other_ca, selfsigned = (trustme.CA(key_type=trustme.KeyType.RSA) for _ in range(3))

    def issue(authority: trustme.CA, *names: str, **more: dt.datetime) -> trustme.LeafCert:
        return authority.issue_cert(
            *names, common_name=names[0], key_type=trustme.KeyType.RSA, **more
        )

    intermediate = ca.create_child_ca(key_type=trustme.KeyType.RSA)
    certificates = {
        "INTERMEDIATE": issue(intermediate, HOST),
        "GOOD": issue(ca, HOST, "localhost"),
        "MUTUAL": issue(ca, HOST, "localhost"),
        "EXPIRED": issue(ca, HOST, not_before=NOW - 9 * DAY, not_after=NOW - DAY),
        "NOTYET": issue(ca, HOST, not_before=NOW + DAY, not_after=NOW + 9 * DAY),
        "OTHERHOST": issue(ca, "broker.example", "10.1.2.3"),
        "WILDCARD": issue(ca, "*.brokers.example"),
        "SELFSIGNED": issue(selfsigned, HOST),
        "OLDTLS": issue(ca, HOST),
    }
    own, above = certificates["INTERMEDIATE"].cert_chain_pems
    pems = {"ca": ca.cert_pem, "other_ca": other_ca.cert_pem}
    pems |= {"own_certificate": own, "intermediate_ca": above}
    for name, pem in pems.items():
        pem.write_to_path(directory / f"{name}.pem")
    overrides = {
        "super.users": "User:ANONYMOUS;User:alice;User:client.example",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.oldtls.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.oldtls.ssl.protocol": "TLSv1.2",
        "listener.name.reauth.connections.max.reauth.ms": "10000",
    }
    for name, certificate in certificates.items():
        prefix = f"listener.name.{name.lower()}.ssl"
        key = pkcs8(key_file(directory, name.lower(), certificate))
        overrides[f"{prefix}.keystore.location"] = str(key)
        overrides[f"{prefix}.truststore.location"] = str(directory / "ca.pem")
    listeners = dict.fromkeys(certificates, "SSL") | {"REAUTH": "SASL_PLAINTEXT"}
    cluster = KafkaCluster(listeners=listeners, overrides=overrides, secure=True)
    node = cluster.node(1)
    name = "advertised.listeners"
    node.properties[name] = node.properties[name].replace(
        f"WILDCARD://{HOST}", f"WILDCARD://{WILDCARD_HOST}"
    )
    with cluster:
        yield SecureKafka(
            kafka=RealKafka(cluster.bootstrap, cluster),
            cluster=cluster,
            ca=directory / "ca.pem",
            other_ca=directory / "other_ca.pem",
            intermediate_ca=directory / "intermediate_ca.pem",
            own_certificate=directory / "own_certificate.pem",
            client_key=key_file(directory, "client", issue(ca, "client.example")),
            stranger_key=key_file(directory, "stranger", issue(other_ca, "client.example")),
        )


def pkcs8(path: Path) -> Path:
    """The same file with its key in PKCS#8, which is all that Java reads."""
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    content = path.read_bytes()
    key = load_pem_private_key(content, None)
    chain = content[content.index(b"-----BEGIN CERTIFICATE") :]
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
    return path


@contextmanager
def acl(secure: SecureKafka, user: str, *rights: tuple[str, str, str]) -> Iterator[None]:
    """Exactly these rights of ``user`` for a while: (resource type, its name, operation) each.
    A name that ends in ``*`` is a prefix.

    An ACL reaches the broker's authorizer a moment after it was made; both ends wait for it.
    """
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        ResourcePatternType,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": secure.kafka.bootstrap})
    wanted = [
        AclBinding(
            ResourceType[kind],
            name.removesuffix("*"),
            ResourcePatternType.PREFIXED if name.endswith("*") else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, name, operation in rights
    ]
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None,
        AclOperation.ANY, AclPermissionType.ANY,
    )  # fmt: skip

    def until(count: int) -> None:
        deadline = time.monotonic() + 60
        while len(admin.describe_acls(everything).result(60)) != count:
            assert time.monotonic() < deadline, "the ACLs did not change"

    until(0)
    if wanted:
        for done in admin.create_acls(wanted).values():
            done.result(60)
    until(len(wanted))
    try:
        yield
    finally:
        # Anew: the broker that is the controller to the first one may be stopped meanwhile.
        admin = AdminClient({"bootstrap.servers": secure.kafka.bootstrap})
        admin.delete_acls([everything])[everything].result(60)
        until(0)
