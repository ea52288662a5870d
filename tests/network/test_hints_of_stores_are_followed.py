"""A hint of certificates, keys and suites works when it is followed."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.network.tls.ssl_context import ssl_context

CA = trustme.CA()
LEAF = CA.issue_cert("client.example")
KEY = load_pem_private_key(LEAF.private_key_pem.bytes(), None)
CHAIN = b"".join(pem.bytes() for pem in LEAF.cert_chain_pems)
CERTIFICATE, TRUSTED = (
    x509.load_pem_x509_certificate(pem.bytes()) for pem in (LEAF.cert_chain_pems[0], CA.cert_pem)
)
LOCKED = BestAvailableEncryption(b"right")


def key_in_pem(how: BestAvailableEncryption | NoEncryption) -> bytes:
    return KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how) + CHAIN


FILES = {
    "ca.pem": CA.cert_pem.bytes(),
    "own.pem": key_in_pem(NoEncryption()),
    "locked.pem": key_in_pem(LOCKED),
    "own.p12": pkcs12.serialize_key_and_certificates(b"own", KEY, CERTIFICATE, None, LOCKED),  # type: ignore[arg-type]  # any key trustme makes
    "ca.p12": pkcs12.serialize_key_and_certificates(None, None, None, [TRUSTED], LOCKED),
    "own.jks": b"\xfe\xed\xfe\xed",
    "text.pem": b"no certificate",
}
TRUST, OWN = "ssl.truststore.", "ssl.keystore."
INLINE = CA.cert_pem.bytes().decode()
SUITE = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"

#: Options that raise, where ``@`` stands for the folder of FILES; the error's code; words of the
#: hint; and the options that are given then. None is an option that is removed.
ROWS: list[tuple[dict[str, str], str, str, list[dict[str, str | None]]]] = [
    ({OWN + "location": "@own.pem", OWN + "password": "x"}, "KP0107",
     "remove the option, or name the file",
     [{OWN + "password": None}, {OWN + "location": "@own.p12", OWN + "password": "right"}]),
    ({TRUST + "location": "@ca.pem", TRUST + "password": "x"}, "KP0107",
     "remove the option, or name the",
     [{TRUST + "password": None}, {TRUST + "location": "@ca.p12", TRUST + "password": "right"}]),
    ({TRUST + "certificates": INLINE, TRUST + "type": "PKCS12"}, "KP0121",
     "set ssl.truststore.type to PEM, or give ssl.truststore.location",
     [{TRUST + "type": "PEM"},
      {TRUST + "certificates": None, TRUST + "location": "@ca.p12", TRUST + "password": "right"}]),
    ({OWN + "location": "@own.jks", OWN + "password": "right"}, "KP0121",
     "then set the location to STORE.p12 and ssl.keystore.type to PKCS12",
     [{OWN + "location": "@own.p12", OWN + "type": "PKCS12"}]),
    ({OWN + "location": "@own.pem", OWN + "type": "JCEKS"}, "KP0121", "PEM and PKCS12 are",
     [{OWN + "type": "PEM"},
      {OWN + "type": "PKCS12", OWN + "location": "@own.p12", OWN + "password": "right"}]),
    ({OWN + "location": "@own.p12", OWN + "password": "wrong"}, "KP0121",
     "is ssl.keystore.password right?", [{OWN + "password": "right"}]),
    ({OWN + "location": "@locked.pem", "ssl.key.password": "wrong"}, "KP0121",
     "is ssl.key.password right", [{"ssl.key.password": "right"}]),
    ({OWN + "location": "@ca.p12", OWN + "password": "right"}, "KP0121",
     "is it the truststore instead of the keystore?",
     [{OWN + "location": None, OWN + "password": None,
       TRUST + "location": "@ca.p12", TRUST + "password": "right"}]),
    ({TRUST + "location": "@text.pem", TRUST + "type": "PKCS12"}, "KP0121",
     "is ssl.truststore.password right?",
     [{TRUST + "location": "@ca.p12", TRUST + "password": "right"}]),
    ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA256"}, "KP0120",
     "remove ssl.cipher.suites: OpenSSL", [{"ssl.cipher.suites": None}]),
    ({"ssl.cipher.suites": "HIGH"}, "KP0120", "use Java's names",
     [{"ssl.cipher.suites": SUITE},
      {"ssl.cipher.suites": f"ECDHE-RSA-AES256-GCM-SHA384,{SUITE}"}]),
    ({"ssl.cipher.suites": SUITE, "ssl.enabled.protocols": "TLSv1.3"}, "KP0120",
     "suites of TLSv1.3 have no _WITH_ in their names",
     [{"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, {"ssl.enabled.protocols": "TLSv1.2"}]),
    ({"ssl.enabled.protocols": "TLSv1.1"}, "KP0120", "TLSv1.2 and TLSv1.3 are supported",
     [{"ssl.enabled.protocols": "TLSv1.2,TLSv1.3"}]),
    ({"ssl.enabled.protocols": "TLSv9"}, "KP0120", "TLSv1.2 and TLSv1.3 are supported",
     [{"ssl.enabled.protocols": "TLSv1.3"}]),
    ({"ssl.endpoint.identification.algorithm": "ldaps"}, "KP0120",
     "https (the default) checks the broker's name; an empty value does not",
     [{"ssl.endpoint.identification.algorithm": "https"},
      {"ssl.endpoint.identification.algorithm": ""}]),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("stores")
    for name, content in FILES.items():
        (made / name).write_bytes(content)
    return made


def given(options: dict[str, str | None], folder: Path) -> dict[str, str]:
    return {
        name: value.replace("@", f"{folder}/")
        for name, value in options.items()
        if value is not None
    }


@pytest.mark.parametrize(
    ("options", "code", "words", "ways"), ROWS, ids=[row[2][:40] for row in ROWS]
)
def test_the_hint_of_a_store_or_a_suite_leads_to_a_context(
    folder: Path,
    options: dict[str, str],
    code: str,
    words: str,
    ways: list[dict[str, str | None]],
) -> None:
    with pytest.raises(ConfigError) as raised:
        ssl_context(given(dict(options), folder))
    assert raised.value.kind.kp_code == code
    assert words in str(raised.value.hint)
    for changes in ways:
        ssl_context(given(options | changes, folder))
