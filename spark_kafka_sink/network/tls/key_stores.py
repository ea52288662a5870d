"""Reads certificates and private keys from Kafka's ``ssl.`` options, and converts them to PEM.

A store is a file in the format PEM or PKCS12, or a PEM text that is the value of an option. This
module detects the type of a file. It rejects a JKS store, with an error that contains the command
to convert the store. ``ssl_context.py`` uses the certificates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.base.security.allow_lists import check_file
from spark_kafka_sink.base.security.local_files import MAX_STORE, UnusableFileError, read_file
from spark_kafka_sink.base.security.password import Password, text_of

_JKS_MAGIC = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_BEGIN, _END, _DASHES = "-----BEGIN ", "-----END ", "-----"
_CERTIFICATES = ("CERTIFICATE", "TRUSTED CERTIFICATE")
#: No label of PEM is longer (RFC 7468).
_LONGEST_LABEL = 64
#: The maximum number of labels of PEM blocks without an end. After this number, the rest of the
#: text is not searched, because each such label costs a search to the end of the text.
_MOST_ENDLESS = 16


@dataclass(frozen=True, slots=True)
class TrustMaterial:
    """The certificates to trust, as PEM. ``source`` names the option and the file of the
    certificates, for messages.
    """

    source: str
    pem: str


@dataclass(frozen=True, slots=True, repr=False)
class KeyMaterial:
    """The client's certificate chain and private key, as PEM. The repr does not show them.
    ``password`` is the password of the private key, or None if the key is not encrypted.
    """

    source: str
    certificates: str
    private_key: str
    password: Password | None


def read_trust_store(options: Mapping[str, object]) -> TrustMaterial | None:
    """Reads the certificates of the options ``ssl.truststore.*``. Returns None if no such option is
    set. TLS then uses the CAs of the operating system.
    """
    kind = _kind(options, "ssl.truststore.type")
    inline = _secret(options, "ssl.truststore.certificates")
    if inline is not None:
        _only_pem(kind, "ssl.truststore")
        return TrustMaterial("ssl.truststore.certificates", _with_newlines(inline.value))
    location = options.get("ssl.truststore.location")
    if location is None:
        return None
    source, content, kind = _read(location, "ssl.truststore", kind)
    if kind == "PEM":
        _refuse_unused(options, "ssl.truststore.password", f"{source} is PEM, which has none")
        return TrustMaterial(source, _text(content))
    password = _secret(options, "ssl.truststore.password")
    _, certificates = _pkcs12(source, content, password, "ssl.truststore.password")
    return TrustMaterial(source, certificates)


def read_key_store(options: Mapping[str, object]) -> KeyMaterial | None:
    """Reads the client's certificate and key from the options ``ssl.keystore.*``. Returns None if
    no such option is set. The client then has no certificate.
    """
    kind = _kind(options, "ssl.keystore.type")
    key_password = _secret(options, "ssl.key.password")
    key = _secret(options, "ssl.keystore.key")
    chain = _secret(options, "ssl.keystore.certificate.chain")
    if key is not None or chain is not None:
        _only_pem(kind, "ssl.keystore")
        if key is None or chain is None:
            raise ConfigError(
                "ssl.keystore.key and ssl.keystore.certificate.chain belong together, and one of"
                " them is missing",
                kind=Kind.KEY_STORE,
            )
        found = _pem_key(
            "ssl.keystore.key", _with_newlines(chain.value), _with_newlines(key.value), key_password
        )
        return _checked_key(options, found)
    location = options.get("ssl.keystore.location")
    if location is None:
        return None
    source, content, kind = _read(location, "ssl.keystore", kind)
    if kind == "PEM":
        text = _text(content)
        why = f"{source} is PEM, which has none; its key's is ssl.key.password"
        _refuse_unused(options, "ssl.keystore.password", why)
        return _checked_key(options, _pem_key(source, text, text, key_password))
    password = _secret(options, "ssl.keystore.password")
    private_key, certificates = _pkcs12(source, content, password, "ssl.keystore.password")
    if not private_key:
        raise ConfigError(
            f"{source} holds no private key",
            hint="is it the truststore instead of the keystore?",
            kind=Kind.KEY_STORE,
        )
    return KeyMaterial(source, certificates, private_key, None)


def _pem_key(source: str, chain: str, key: str, password: Password | None) -> KeyMaterial:
    private_key = next((b.text for b in _blocks(key) if b.label.endswith("PRIVATE KEY")), None)
    certificates = [b.text for b in _blocks(chain) if b.label in _CERTIFICATES]
    if private_key is None:
        raise ConfigError(f"{source} holds no private key in PEM", kind=Kind.KEY_STORE)
    if not certificates:
        raise ConfigError(
            f"the certificate chain that belongs to {source} holds no certificate",
            kind=Kind.KEY_STORE,
        )
    return KeyMaterial(source, "\n".join(certificates) + "\n", private_key + "\n", password)


def _checked_key(options: Mapping[str, object], found: KeyMaterial) -> KeyMaterial:
    if "ENCRYPTED" not in found.private_key:
        _refuse_unused(options, "ssl.key.password", f"the key of {found.source} is not encrypted")
    return found


def _refuse_unused(options: Mapping[str, object], name: str, why: str) -> None:
    """Raises ConfigError if the password option ``name`` is set but has no effect. The user may
    wrongly believe that the password protects a file.
    """
    if text_of(options.get(name)):
        raise ConfigError(
            f"{name} would have no effect: {why}",
            hint="remove the option, or name the file that it belongs to",
            kind=Kind.NO_EFFECT,
        )


def _kind(options: Mapping[str, object], name: str) -> str | None:
    """Returns the type of a store, in capitals, from the options. Returns None if the options do
    not contain the type. The type is then detected from the content.
    """
    value = options.get(name)
    if value is None:
        return None
    kind = str(value).strip().upper()
    if kind not in ("PEM", "PKCS12", "JKS"):
        raise ConfigError(
            f"{name}={safe_text(kind)} is not supported",
            hint="PEM and PKCS12 are",
            kind=Kind.KEY_STORE,
        )
    return kind


def _only_pem(kind: str | None, store: str) -> None:
    if kind not in (None, "PEM"):
        raise ConfigError(
            f"{store}.type={kind}, but its content is given inline, which is PEM",
            hint=f"set {store}.type to PEM, or give {store}.location",
            kind=Kind.KEY_STORE,
        )


def _secret(options: Mapping[str, object], name: str) -> Password | None:
    value = options.get(name)
    if value is None or isinstance(value, Password):
        return value
    return Password(str(value))


def _read(location: object, store: str, kind: str | None) -> tuple[str, bytes, str]:
    """Reads a store. Returns its name for messages, its bytes, and its type (PEM or PKCS12)."""
    source = f"{store}.location={safe_text(f'{location}')}"
    path = text_of(location)
    try:
        content = read_file(path, source, MAX_STORE, lambda it: check_file(it, source))
    except UnusableFileError as error:
        raise ConfigError(
            f"{source} can't be read: {error}",
            hint="the file must be on every executor (spark.files or a volume), and readable",
            kind=Kind.KEY_STORE,
        ) from None
    found = "PKCS12"
    if content.startswith(_JKS_MAGIC):
        found = "JKS"
    elif b"-----BEGIN " in content:
        found = "PEM"
    # The format of JKS is documented only by Java's code, and its encryption is weak.
    if found == "JKS":
        raise ConfigError(
            f"{source} is a JKS store, which only Java reads",
            hint="convert it: keytool -importkeystore -srckeystore STORE.jks -destkeystore "
            "STORE.p12 -deststoretype PKCS12; then set the location to STORE.p12 and "
            f"{store}.type to PKCS12",
            kind=Kind.KEY_STORE,
        )
    if kind not in (None, found) and "PEM" in (kind, found):
        is_ = "is PEM" if found == "PEM" else "holds nothing in PEM"
        raise ConfigError(f"{source} {is_}, but {store}.type is {kind}", kind=Kind.KEY_STORE)
    return source, content, found


def _text(content: bytes) -> str:
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        # Comments between PEM blocks may be anything; the blocks are ASCII.
        return content.decode("utf-8", "replace").encode("ascii", "replace").decode("ascii")


def _with_newlines(pem: str) -> str:
    """Restores the newlines of a PEM text in an option. In an option of one line, a newline may be
    written as a space, or as backslash and n.
    """
    pem = pem.replace("\\n", "\n").strip()
    if "\n" in pem:
        return pem + "\n"

    out, end = [], 0
    for block in _blocks(pem):
        body = block.text[len(_BEGIN + block.label + _DASHES) : -len(_END + block.label + _DASHES)]
        lines = "\n".join(body.split())
        out += [
            pem[end : block.begin].strip(),
            f"{_BEGIN}{block.label}{_DASHES}\n{lines}\n{_END}{block.label}{_DASHES}\n",
        ]
        end = block.begin + len(block.text)
    return "".join([*out, pem[end:].strip()])


@dataclass(frozen=True, slots=True, repr=False)
class _Block:
    """A block of a PEM text (from BEGIN to END), and its offset in the text."""

    label: str
    text: str
    begin: int


def _blocks(pem: str) -> Iterator[_Block]:
    """Yields all complete blocks of a PEM text, in order. The time is linear in the length of the
    text.
    """
    endless: set[str] = set()
    at = pem.find(_BEGIN)
    while at >= 0:
        after = at + len(_BEGIN)
        dashes = pem.find(_DASHES, after, after + _LONGEST_LABEL + len(_DASHES))
        label = pem[after:dashes] if dashes >= 0 else ""
        if label and label not in endless:
            end = pem.find(f"{_END}{label}{_DASHES}", dashes)
            if end < 0 and len(endless) == _MOST_ENDLESS:
                return
            if end < 0:
                endless.add(label)
            else:
                after = end + len(f"{_END}{label}{_DASHES}")
                yield _Block(label, pem[at:after], at)
        at = pem.find(_BEGIN, after)


def _pkcs12(source: str, content: bytes, password: Password | None, option: str) -> tuple[str, str]:
    """The private key and the certificates of a PKCS12 store, as two PEM texts. The first text is
    empty if the store has no key.
    """
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
            kind=Kind.MISSING_PACKAGE,
        ) from error
    try:
        store = pkcs12.load_pkcs12(content, None if password is None else password.value.encode())
    except ValueError:
        raise ConfigError(
            f"{source} can't be opened as a PKCS12 store",
            hint=f"is {option} right?",
            kind=Kind.KEY_STORE,
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
