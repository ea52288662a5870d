"""Rows of a job, each with secrets in the options of one kind of security setting."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate

from tests.security.canaries import new_canary

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"

#: The secrets that are given as they are, to see what Spark does with them.
INLINE, INLINE_LOGIN = "inline", "inline login module"


def unsigned_token(user: str, canary: str) -> str:
    def part(fields: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")

    claims = {"sub": user, "exp": 4_000_000_000, "iat": 1_700_000_000, "jti": canary}
    return f"{part({'alg': 'none'})}.{part(claims)}."


class Secrets:
    """Canaries by name, and the files that hold them, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self.known: dict[str, str] = {}
        #: For those who read it from there.
        self.environment: dict[str, str] = {}

    def new(self, name: str, *, spicy: bool = True) -> str:
        self.known[name] = new_canary(spicy=spicy)
        return self.known[name]

    def reference(self, kind: str, name: str, content: str) -> str:
        """To a file or a variable (``kind``) with that content."""
        if kind == "file":
            return self.file(name, content)
        variable = f"KPROD_CANARY_{len(self.environment)}"
        self.environment[variable] = content
        return f"${{env:{variable}}}"

    def file(self, name: str, content: str | bytes) -> str:
        """A reference to a file with that content."""
        path = self.directory / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return f"${{file:{path}}}"


def stores(secure, secrets: Secrets) -> dict[str, str]:
    """Alice's key encrypted, plain, and in PKCS12; the CA in PKCS12."""
    security = secure.cluster.security
    pem = security.client_keys["alice"].read_bytes()
    key = load_pem_private_key(pem, None)
    certificate = load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :])
    ca = load_pem_x509_certificate(security.ca.read_bytes())

    def locked(name: str) -> BestAvailableEncryption:
        return BestAvailableEncryption(secrets.new(name).encode())

    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked("ssl.key.password"))
    inline = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked(INLINE))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # A line of the key itself is a secret that was there before us.
    secrets.known["ssl.keystore.key"] = plain.decode().splitlines()[2]
    store = pkcs12.serialize_key_and_certificates(
        b"alice", key, certificate, [ca], locked("ssl.keystore.password")
    )
    trust = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(ca, b"ca")], locked("ssl.truststore.password")
    )
    secrets.file("encrypted.pem", encrypted + pem[pem.index(b"-----BEGIN CERT") :])
    secrets.file("inline.pem", inline + pem[pem.index(b"-----BEGIN CERT") :])
    secrets.file("alice.p12", store)
    secrets.file("trust.p12", trust)
    return {
        "encrypted": str(secrets.directory / "encrypted.pem"),
        "inline": str(secrets.directory / "inline.pem"),
        "store": str(secrets.directory / "alice.p12"),
        "trust": str(secrets.directory / "trust.p12"),
        "key": secrets.file("key.pem", plain),
        "chain": secrets.file("chain.pem", pem[pem.index(b"-----BEGIN CERT") :]),
        "key password": secrets.file("key password", secrets.known["ssl.key.password"] + "\n"),
        "store password": secrets.file("store password", secrets.known["ssl.keystore.password"]),
        "trust password": secrets.file("trust password", secrets.known["ssl.truststore.password"]),
    }


#: What is no secret of itself; what a reference leads to is one all the same. (Every such option,
#: in every way to fail, by a producer alone: ``test_references_are_not_shown.py``.)
TRUST, KEYS = "ssl.truststore.location", "ssl.keystore.location"
URL, SCOPE = "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope"
TEXTS = (TRUST, KEYS, URL, SCOPE)
KINDS = {"file": "batch", "env": "stream"}


def rows_of_texts(secure, secrets: Secrets, provider: str, client, row) -> list[dict[str, object]]:
    """Each of ``TEXTS`` by file and by variable, where it works, and a path where it does not."""
    rows, security = [], secure.cluster.security
    for kind, how in KINDS.items():
        canaries = {name: secrets.new(f"{name} by {kind}", spicy=False) for name in TEXTS}
        right = {URL: f"{provider}/token/{canaries[URL]}", SCOPE: canaries[SCOPE]}
        for name, source in ((TRUST, security.ca), (KEYS, security.client_keys["alice"])):
            directory = secrets.directory / canaries[name]
            directory.mkdir()
            shutil.copy(source, directory / "it.pem")
            right[name] = str(directory / "it.pem")
        found = {n: secrets.reference(kind, f"right {n}", text) for n, text in right.items()}
        rows.append(row(f"paths by {kind}", "SSL", {n: found[n] for n in (TRUST, KEYS)}))
        token = {TRUST: str(security.ca)} | client | {n: found[n] for n in (URL, SCOPE)}
        rows.append(row(f"token endpoint by {kind}", "SASL_SSL", token))
        wrong = secrets.reference(kind, "wrong path", canaries[TRUST])
        says = re.escape(wrong)
        rows.append(row(f"wrong path by {kind}", "SSL", {TRUST: wrong}, says=says, kind=how))
    return rows


def rows_of(secure, secrets: Secrets, provider: str, token: str) -> list[dict[str, object]]:
    """One row for each secret option and each way to fail; ``says`` is what its error says."""
    cluster, files = secure.cluster, stores(secure, secrets)
    passwords = dict(cluster.security.passwords)
    secrets.known |= {"alice's password": passwords["alice"], INLINE_LOGIN: passwords["bob"]}
    right = secrets.file("alice", passwords["alice"])
    wrong = secrets.file("wrong", secrets.new("a wrong password"))
    ca = {"ssl.truststore.location": str(cluster.security.ca)}
    topic = secure.kafka.unique_topic("canary")

    def row(name, listener, options, *, says="", kind="pickled", known=None):
        prefixed = {f"kafka.{n}": v for n, v in options.items()}
        protocol = {} if known else {"kafka.security.protocol": listener}
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_of(listener), "topic": topic}
        prefixed["kafka.max.block.ms"] = "8000" if says else "60000"
        return {
            "name": name, "kind": kind, "options": servers | protocol | prefixed | (known or {}),
            "says": says,
        }  # fmt: skip

    def failing(name, listener, options, *, says):
        return row(name, listener, options, says=says, kind="producer")

    def user(reference, mechanism="SCRAM-SHA-512"):
        return {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": reference}

    def jaas(inner, mechanism="PLAIN"):
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": inner}

    client = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.credentials.client.id": "canary-client",
        "sasl.oauthbearer.client.credentials.client.secret": secrets.file(
            "client secret", secrets.new("client secret")
        ),
    }
    config_file = secrets.directory / "client.properties"
    config_file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nssl.truststore.location={ca['ssl.truststore.location']}\n"
        f'sasl.jaas.config={PLAIN} username="alice" password="{passwords["alice"]}";\n'
    )
    refused = "not accept|SASL_AUTHENTICATION_FAILED|uthentication"
    return [
        row("key by reference", "SSL", ca | {"ssl.keystore.key": files["key"],
            "ssl.keystore.certificate.chain": files["chain"]}, kind="batch"),
        row("encrypted key", "SSL", ca | {"ssl.keystore.location": files["encrypted"],
            "ssl.key.password": files["key password"]}),
        row("stores", "SSL", {"ssl.keystore.location": files["store"],
            "ssl.keystore.password": files["store password"],
            "ssl.truststore.location": files["trust"],
            "ssl.truststore.password": files["trust password"]}, kind="stream"),
        row("SCRAM", "SASL_SSL", ca | user(right), kind="stream"),
        row("SCRAM from the environment", "SASL_SSL", ca | user("${env:KPROD_CANARY_ENV}")),
        row("login module", "SASL_SSL",
            ca | jaas(f'{PLAIN} username="alice" password="{right}";')),
        row("configFile", "SASL_SSL", {}, known={"configFile": str(config_file)},
            kind="batch"),
        row("token endpoint", "SASL_SSL", ca | client
            | {URL: f"{provider}/token"}),
        row("token", "SASL_SSL", ca | {"sasl.mechanism": "OAUTHBEARER",
            "sasl.password": secrets.file("token", token)}),
        row(INLINE, "SSL", ca | {"ssl.keystore.location": files["inline"],
            "ssl.key.password": secrets.known[INLINE]}, kind="batch"),
        row("inline login module", "SASL_SSL",
            ca | jaas(f'{PLAIN} username="bob" password="{secrets.known[INLINE_LOGIN]}";'),
            says="AUTHORIZATION_FAILED", kind="stream"),
        # what fails
        row("wrong password", "SASL_SSL", ca | user(wrong), says=refused, kind="batch"),
        failing("wrong password for PLAIN", "SASL_PLAINTEXT", user(wrong, "PLAIN"), says=refused),
        row("wrong password in a stream", "SASL_SSL", ca | user(wrong, "PLAIN"), says=refused,
            kind="stream"),
        failing("wrong key password", "SSL", ca | {"ssl.keystore.location": files["encrypted"],
            "ssl.key.password": wrong}, says="ssl.key.password"),
        failing("wrong store password", "SSL", ca | {"ssl.keystore.location": files["store"],
            "ssl.keystore.password": wrong}, says="ssl.keystore.password"),
        failing("wrong trust password", "SSL", {"ssl.truststore.location": files["trust"],
            "ssl.truststore.password": wrong}, says="ssl.truststore.password"),
        failing("a key that is none", "SSL", ca | {"ssl.keystore.key": wrong,
            "ssl.keystore.certificate.chain": files["chain"]}, says="ssl.keystore.key"),
        failing("wrong CA", "SSL", {"ssl.truststore.location": str(secure.other_ca),
            "ssl.keystore.location": files["encrypted"], "ssl.key.password": files["key password"]},
            says="not trusted"),
        failing("a login module that is cut", "SASL_SSL", ca | jaas(
            secrets.file("cut", f'{PLAIN} username="alice" password="{passwords["alice"]}')),
            says="sasl.jaas.config"),
        failing("evil token endpoint", "SASL_SSL", ca | client
            | {URL: f"{provider}/evil"}, says="401"),
        row("missing file", "SASL_SSL", ca | user("${file:/nowhere/pw}"),
            says=r"\$\{file:/nowhere/pw\}.*the driver", kind="batch"),
        *rows_of_texts(secure, secrets, provider, client, row),
    ]  # fmt: skip
