"""Certificates, keys and TLS versions from Kafka's options."""

from __future__ import annotations

import os
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.tls.key_stores import read_key_store, read_trust_store
from spark_kafka_sink.network.tls.ssl_context import ssl_context

CA = trustme.CA()
LEAF = CA.issue_cert("client.example")
KEY = LEAF.private_key_pem.bytes()
CHAIN = b"".join(pem.bytes() for pem in LEAF.cert_chain_pems)
ENCRYPTED = load_pem_private_key(KEY, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"hunter2")
)


def refused(**options: object) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        ssl_context({name.replace("__", "."): value for name, value in options.items()})
    assert "hunter2" not in str(raised.value) + repr(raised.value.__cause__)
    return raised.value


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def keystore_p12(password: bytes = b"hunter2") -> bytes:
    certificate = x509.load_pem_x509_certificate(LEAF.cert_chain_pems[0].bytes())
    ca = x509.load_pem_x509_certificate(CA.cert_pem.bytes())
    return pkcs12.serialize_key_and_certificates(
        b"client",
        load_pem_private_key(KEY, None),  # type: ignore[arg-type]  # any key trustme makes
        certificate,
        [ca],
        BestAvailableEncryption(password),
    )


def test_the_default_trusts_the_system_and_needs_tls_1_2():
    context = ssl_context({})
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.cert_store_stats()["x509_ca"] > 0


def test_a_truststore_replaces_the_systems_cas(tmp_path):
    location = write(tmp_path / "ca.pem", b"# our CA\n" + CA.cert_pem.bytes())
    for options in (
        {"ssl.truststore.location": location},
        {"ssl.truststore.location": location, "ssl.truststore.type": "PEM"},
        {"ssl.truststore.certificates": Password(CA.cert_pem.bytes().decode())},
    ):
        assert ssl_context(options).cert_store_stats() == {"x509": 1, "x509_ca": 1, "crl": 0}


@pytest.mark.parametrize("newline", [" ", "\\n", "\n"])
def test_inline_pem_survives_a_setting_of_one_line(newline):
    pem = CA.cert_pem.bytes().decode().strip().replace("\n", newline)
    context = ssl_context({"ssl.truststore.certificates": Password(pem)})
    assert context.cert_store_stats()["x509"] == 1


def test_a_key_comes_from_a_file_inline_encrypted_or_from_pkcs12(tmp_path):
    both = write(tmp_path / "both.pem", KEY + CHAIN)
    locked = write(tmp_path / "locked.pem", CHAIN + ENCRYPTED)
    store = write(tmp_path / "store.p12", keystore_p12())
    secret = Password("hunter2")
    for options in (
        {"ssl.keystore.location": both},
        {"ssl.keystore.location": locked, "ssl.key.password": secret},
        {"ssl.keystore.location": store, "ssl.keystore.password": secret},
        {
            "ssl.keystore.location": store,
            "ssl.keystore.password": secret,
            "ssl.keystore.type": "pkcs12",
        },
        {
            "ssl.keystore.key": Password(ENCRYPTED.decode()),
            "ssl.keystore.certificate.chain": Password(CHAIN.decode()),
            "ssl.key.password": secret,
        },
    ):
        ssl_context(options)  # OpenSSL itself checks that key and certificate belong together
        material = read_key_store(options)
        assert material is not None
        assert "PRIVATE" not in repr(material)


def test_a_pkcs12_truststore_of_java_is_read(tmp_path):
    """keytool marks trusted certificates in a way of its own."""
    certificate = write(tmp_path / "ca.pem", CA.cert_pem.bytes())
    store = tmp_path / "trust.p12"
    command = ["keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", certificate]
    command += ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", "hunter2"]
    subprocess.run(command, check=True, capture_output=True)
    options = {
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": Password("hunter2"),
    }
    assert ssl_context(options).cert_store_stats()["x509_ca"] == 1
    wrong = refused(ssl__truststore__location=str(store), ssl__truststore__password=Password("x"))
    assert "is ssl.truststore.password right?" in (wrong.hint or "")


def test_a_truststore_in_place_of_a_keystore_is_recognized(tmp_path):
    """Its password may come from a file of properties, as text."""
    certificate = x509.load_pem_x509_certificate(CA.cert_pem.bytes())
    content = pkcs12.serialize_key_and_certificates(
        b"ca", None, None, [certificate], BestAvailableEncryption(b"hunter2")
    )
    store = write(tmp_path / "trust.p12", content)
    error = refused(ssl__keystore__location=store, ssl__keystore__password="hunter2")
    assert error.message == f"ssl.keystore.location={store} holds no private key"
    assert error.hint == "is it the truststore instead of the keystore?"


def test_a_jks_store_is_refused_with_the_converting_command(tmp_path):
    location = write(tmp_path / "trust.jks", b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    error = refused(ssl__truststore__location=location)
    assert "only Java reads" in error.message
    assert "keytool -importkeystore" in (error.hint or "")
    assert "keytool -importkeystore" in (
        refused(ssl__keystore__location=location, ssl__keystore__type="JKS").hint or ""
    )


def test_a_truststore_without_a_certificate_is_refused_by_name(tmp_path):
    bare = write(tmp_path / "bare.pem", KEY)
    assert f"{bare} holds no certificate" in refused(ssl__truststore__location=bare).message
    key_only = pkcs12.serialize_key_and_certificates(
        b"x",
        load_pem_private_key(KEY, None),  # type: ignore[arg-type]  # any key trustme makes
        None,
        None,
        BestAvailableEncryption(b"hunter2"),
    )
    error = refused(
        ssl__truststore__location=write(tmp_path / "key.p12", key_only),
        ssl__truststore__password=Password("hunter2"),
    )
    assert "key.p12 holds no certificate" in error.message
    for nothing in ("", " ", "no PEM at all"):
        error = refused(ssl__truststore__certificates=Password(nothing))
        assert error.message == "ssl.truststore.certificates holds no certificate"


def test_any_trusted_certificate_ends_a_chain_as_in_java():
    """An intermediate, or the broker's own; but not with another name, nor of another broker."""
    middle = CA.create_child_ca()
    leaf, other = middle.issue_cert("broker.example"), middle.issue_cert("broker.example")
    pems = [pem.bytes().decode() for pem in leaf.cert_chain_pems]
    assert len(pems) == 2
    for trusted in (*pems, CA.cert_pem.bytes().decode()):
        context = ssl_context({"ssl.truststore.certificates": Password(trusted)})
        assert shakes_hands(context, leaf, "broker.example") == ""
        assert "Hostname mismatch" in shakes_hands(context, leaf, "other.example")
    pinned = ssl_context({"ssl.truststore.certificates": Password(pems[0])})
    assert "unable to get" in shakes_hands(pinned, other, "broker.example")


def shakes_hands(context: ssl.SSLContext, certificate: trustme.LeafCert, host: str) -> str:
    """What is wrong with the server's certificate; empty when nothing is."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(theirs)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=host)
    server = theirs.wrap_bio(to_server, to_client, server_side=True)
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            with suppress(ssl.SSLWantReadError):
                server.do_handshake()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        else:
            return ""


def test_what_can_not_be_read_is_named_with_its_option_and_file(tmp_path):
    missing = refused(ssl__truststore__location="/nowhere/ca.pem")
    assert "ssl.truststore.location=/nowhere/ca.pem can't be read: No such file" in missing.message
    assert "executor" in (missing.hint or "")
    empty = write(tmp_path / "empty.pem", b"")
    assert empty in refused(ssl__truststore__location=empty).message
    broken = write(
        tmp_path / "broken.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    assert "holds no usable certificate" in refused(ssl__truststore__location=broken).message
    keyless = write(tmp_path / "keyless.pem", CHAIN)
    assert "holds no private key" in refused(ssl__keystore__location=keyless).message
    bare = write(tmp_path / "bare.pem", KEY)
    assert "holds no certificate" in refused(ssl__keystore__location=bare).message
    locked = write(tmp_path / "locked.pem", CHAIN + ENCRYPTED)
    for password in ({}, {"ssl__key__password": Password("hunter3")}):
        error = refused(ssl__keystore__location=locked, **password)
        assert "is ssl.key.password right" in (error.hint or "")
    stranger = CA.issue_cert("other.example").private_key_pem.bytes()
    mixed = write(tmp_path / "mixed.pem", stranger + CHAIN)
    assert "belong to the key" in (refused(ssl__keystore__location=mixed).hint or "")
    half = refused(ssl__keystore__key=Password(KEY.decode()))
    assert "belong together" in half.message
    pem_as_p12 = refused(ssl__truststore__location=bare, ssl__truststore__type="PKCS12")
    assert "is PEM, but ssl.truststore.type is PKCS12" in pem_as_p12.message
    bcfks = refused(ssl__truststore__location=bare, ssl__truststore__type="BCFKS")
    assert "ssl.truststore.type=BCFKS is not supported" in bcfks.message
    assert bcfks.hint == "PEM and PKCS12 are"
    notes = write(tmp_path / "notes.txt", b"where is the CA?")
    text = refused(ssl__truststore__location=notes, ssl__truststore__type="PEM")
    assert "holds nothing in PEM, but ssl.truststore.type is PEM" in text.message
    inline = refused(ssl__truststore__certificates=Password("x"), ssl__truststore__type="JKS")
    assert "given inline" in inline.message


@pytest.mark.parametrize(
    ("names", "low", "high"),
    [
        (("TLSv1.3",), ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3),
        (("TLSv1.2",), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2),
        (("TLSv1.1", "TLSv1.2", "TLSv1.3"), ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3),
    ],
)
def test_only_the_configured_sound_tls_versions_are_used(names, low, high):
    context = ssl_context({"ssl.enabled.protocols": names})
    assert (context.minimum_version, context.maximum_version) == (low, high)


def test_broken_versions_alone_and_unknown_ones_are_refused():
    assert "nothing that is safe" in refused(ssl__enabled__protocols=("TLSv1.1",)).message
    assert "TLSv1.4 is unknown" in refused(ssl__enabled__protocols=("TLSv1.4",)).message


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_go_by_javas_names_and_by_openssls(java, openssl):
    context = ssl_context({"ssl.cipher.suites": (java,), "ssl.enabled.protocols": ("TLSv1.2",)})
    assert openssl in {cipher["name"] for cipher in context.get_ciphers()}
    older = [c["name"] for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
    assert older == [openssl]


@pytest.mark.parametrize(
    "name",
    [
        "TLS_X_WITH_Y",
        "TLS_AES_512_GCM_SHA512",
        "ALL",
        "HIGH",
        "COMPLEMENTOFDEFAULT",
        "@SECLEVEL=0",
        "SUITEB128ONLY",
        "ECDHE+AESGCM",
        "!SHA1",
        "-ALL",
        "AES128-SHA:aNULL",
        "ecdhe-rsa-aes128-gcm-sha256",
        "\x1b[31m",
    ],
)
def test_what_is_no_name_of_a_suite_is_refused(name):
    """OpenSSL reads a language of its own, in which a few letters switch certificates off."""
    good = "ECDHE-RSA-AES128-GCM-SHA256"
    for names in ((name,), (good, name), (name, good)):
        error = refused(ssl__cipher__suites=names)
        assert "is not supported by OpenSSL here" in error.message
        assert error.message.isprintable()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("AECDH-AES128-SHA", "takes no certificate"),
        ("TLS_ADH_WITH_AES_128_CBC_SHA", "takes no certificate"),
        ("PSK-AES128-CBC-SHA", "takes no certificate"),
        ("ECDHE-ECDSA-NULL-SHA", "encrypts nothing"),
        ("TLS_RSA_WITH_NULL_SHA256", "encrypts nothing"),
    ],
)
def test_suites_without_certificate_or_encryption_are_refused(name, why):
    for names in ((name,), ("ECDHE-RSA-AES128-GCM-SHA256", name), (name, "TLS_AES_128_GCM_SHA256")):
        assert why in refused(ssl__cipher__suites=names).message


def test_a_version_of_which_no_suite_is_wanted_is_not_spoken():
    newer, older = "TLS_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    context = ssl_context({"ssl.cipher.suites": (newer,)})
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    context = ssl_context({"ssl.cipher.suites": (older, "TLS_EMPTY_RENEGOTIATION_INFO_SCSV")})
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    context = ssl_context({"ssl.cipher.suites": (newer, older)})
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.maximum_version is ssl.TLSVersion.MAXIMUM_SUPPORTED
    for suite, version in ((newer, "TLSv1.2"), (older, "TLSv1.3")):
        error = refused(ssl__cipher__suites=(suite,), ssl__enabled__protocols=(version,))
        assert "has no suite of ssl.enabled.protocols" in error.message


def test_an_empty_identification_algorithm_skips_the_name_only():
    context = ssl_context({"ssl.endpoint.identification.algorithm": ""})
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    error = refused(ssl__endpoint__identification__algorithm="ldaps")
    assert "ldaps is unknown" in error.message


@pytest.mark.parametrize("memfd", [True, False], ids=["Linux", "a system without memfd"])
def test_no_file_and_no_descriptor_stays_behind(tmp_path, monkeypatch, memfd):
    if not memfd:
        monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(Path("/proc/self/fd").iterdir())
    ssl_context(
        {
            "ssl.keystore.key": Password(KEY.decode()),
            "ssl.keystore.certificate.chain": Password(CHAIN.decode()),
        }
    )
    assert set(Path("/proc/self/fd").iterdir()) == before
    assert list(tmp_path.iterdir()) == []


def test_nothing_given_means_nothing_shown():
    assert read_key_store({}) is None
    assert read_trust_store({}) is None
