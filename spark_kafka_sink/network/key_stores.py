"""Certificates and private keys as Kafka's options give them: PEM, inline or in a file; PKCS12.

Owns: finding out what a store is and reading it to PEM text. Never: what is done with it
(``ssl_context.py``). A JKS store is refused with the command that converts it: its format is
Java's own, and its protection is not worth a parser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.secrets import Password

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_CERTIFICATE = re.compile(
    r"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.+?-----END (?:TRUSTED )?CERTIFICATE-----", re.DOTALL
)
_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----.+?-----END (?:[A-Z]+ )*PRIVATE KEY-----", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class TrustMaterial:
    """Certificates to trust, as PEM; ``source`` is the option, and the file, they came from."""

    source: str
    pem: str


@dataclass(frozen=True, slots=True, repr=False)
class KeyMaterial:
    """Our certificate chain and private key, as PEM. Never shown: it has no repr of its own."""

    source: str
    certificates: str
    private_key: str
    password: Password | None


def read_trust_store(options: Mapping[str, object]) -> TrustMaterial | None:
    """What ``ssl.truststore.*`` names; None when nothing is: the system's own CAs are trusted."""
    kind = _kind(options, "ssl.truststore.type")
    inline = _secret(options, "ssl.truststore.certificates")
    if inline is not None:
        _only_pem(kind, "ssl.truststore")
        return TrustMaterial("ssl.truststore.certificates", _with_newlines(inline.value))
    location = options.get("ssl.truststore.location")
    if location is None:
        return None
    source, content, kind = _read(str(location), "ssl.truststore", kind)
    if kind == "PEM":
        return TrustMaterial(source, _text(content))
    password = _secret(options, "ssl.truststore.password")
    _, certificates = _pkcs12(source, content, password, "ssl.truststore.password")
    return TrustMaterial(source, certificates)


def read_key_store(options: Mapping[str, object]) -> KeyMaterial | None:
    """What ``ssl.keystore.*`` names; None when nothing is: we show no certificate."""
    kind = _kind(options, "ssl.keystore.type")
    key_password = _secret(options, "ssl.key.password")
    key = _secret(options, "ssl.keystore.key")
    chain = _secret(options, "ssl.keystore.certificate.chain")
    if key is not None or chain is not None:
        _only_pem(kind, "ssl.keystore")
        if key is None or chain is None:
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together, and one of"
                " them is missing"
            )
        return _pem_key(
            "ssl.keystore.key", _with_newlines(chain.value), _with_newlines(key.value), key_password
        )
    location = options.get("ssl.keystore.location")
    if location is None:
        return None
    source, content, kind = _read(str(location), "ssl.keystore", kind)
    if kind == "PEM":
        text = _text(content)
        return _pem_key(source, text, text, key_password)
    password = _secret(options, "ssl.keystore.password")
    private_key, certificates = _pkcs12(source, content, password, "ssl.keystore.password")
    if not private_key:
        raise ConfigError(
            f"{source} holds no private key", hint="is it the truststore instead of the keystore?"
        )
    return KeyMaterial(source, certificates, private_key, None)


def _pem_key(source: str, chain: str, key: str, password: Password | None) -> KeyMaterial:
    private_key = _PRIVATE_KEY.search(key)
    certificates = _CERTIFICATE.findall(chain)
    if private_key is None:
        raise ConfigError(f"{source} holds no private key in PEM")
    if not certificates:
        raise ConfigError(f"the certificate chain that belongs to {source} holds no certificate")
    return KeyMaterial(source, "\n".join(certificates) + "\n", private_key.group() + "\n", password)


def _kind(options: Mapping[str, object], name: str) -> str | None:
    """The type that the user gave, in capitals; None lets the content tell."""
    value = options.get(name)
    if value is None:
        return None
    kind = str(value).strip().upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise ConfigError(f"{name}={value} is not supported", hint="PEM and PKCS12 are")
    return kind


def _only_pem(kind: str | None, store: str) -> None:
    if kind not in (None, "PEM"):
        raise ConfigError(
            f"{store}.type={kind}, but its content is given inline, which is PEM",
            hint=f"set {store}.type to PEM, or give {store}.location",
        )


def _secret(options: Mapping[str, object], name: str) -> Password | None:
    value = options.get(name)
    if value is None or isinstance(value, Password):
        return value
    return Password(str(value))


def _read(location: str, store: str, kind: str | None) -> tuple[str, bytes, str]:
    """Its source as messages name it, its bytes, and what it is: PEM or PKCS12."""
    source = f"{store}.location={location}"
    try:
        content = Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{source} can't be read: {error.strerror or error}",
            hint="the file must be on every executor (spark.files or a volume), and readable",
        ) from error
    found = "PKCS12"
    if content.startswith(_JKS_MAGIC):
        found = "JKS"
    elif b"-----BEGIN " in content:
        found = "PEM"
    if found == "JKS":
        raise ConfigError(
            f"{source} is a JKS store, which only Java reads",
            hint="convert it: keytool -importkeystore -srckeystore STORE.jks -destkeystore "
            "STORE.p12 -deststoretype PKCS12; then set the location to STORE.p12 and "
            f"{store}.type to PKCS12",
        )
    if kind not in (None, found) and "PEM" in (kind, found):
        is_ = "is PEM" if found == "PEM" else "holds nothing in PEM"
        raise ConfigError(f"{source} {is_}, but {store}.type says {kind}")
    return source, content, found


def _text(content: bytes) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        # Comments between PEM blocks may be anything; the blocks are ASCII.
        return content.decode("utf-8", "replace").encode("ascii", "replace").decode("ascii")


def _with_newlines(pem: str) -> str:
    """Inline PEM may come from a one-line setting: a space or a written-out newline for each."""
    pem = pem.replace("\\n", "\n").strip()
    if "\n" in pem:
        return pem + "\n"

    def lines(block: re.Match[str]) -> str:
        body = "\n".join(block["body"].split())
        return f"{block['begin']}\n{body}\n{block['end']}\n"

    return re.sub(
        r"(?P<begin>-----BEGIN [A-Z ]+-----)(?P<body>.+?)(?P<end>-----END [A-Z ]+-----)\s*",
        lines,
        pem,
    )


def _pkcs12(source: str, content: bytes, password: Password | None, option: str) -> tuple[str, str]:
    """Private key (empty without) and certificates of a PKCS12 store, as PEM."""
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError as error:
        raise ConfigError(
            f"{source} is a PKCS12 store, and the package cryptography is not installed",
            hint="pip install 'spark_kafka_sink[tls]', or convert it to PEM: openssl pkcs12 -in "
            "STORE.p12 -out STORE.pem",
        ) from error
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.value.encode())
    except ValueError:
        raise ConfigError(
            f"{source} can't be opened as a PKCS12 store", hint=f"is {option} right?"
        ) from None
    chain = [store.cert, *store.additional_certs]
    certificates = "".join(
        entry.certificate.public_bytes(Encoding.PEM).decode("ascii")
        for entry in chain
        if entry is not None
    )
    if store.key is None:
        return "", certificates
    key = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key.decode("ascii"), certificates
