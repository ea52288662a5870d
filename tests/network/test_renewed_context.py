"""TLS files that change while a producer runs."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trustme

from spark_kafka_sink.network.tls.renewed_context import RenewedContext

OLD, NEW = trustme.CA(), trustme.CA()
KEY_STORE = OLD.issue_cert("client.example")


def pem_of(certificate: trustme.LeafCert) -> bytes:
    return certificate.private_key_and_cert_chain_pem.bytes()


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_bytes(OLD.cert_pem.bytes())
    return path


def test_a_file_that_did_not_change_is_read_once(trusted: Path):
    context = RenewedContext({"ssl.truststore.location": str(trusted)})
    assert context() is context()


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "written to"])
def test_a_changed_truststore_is_used(trusted: Path, tmp_path: Path, replaced: bool):
    context = RenewedContext({"ssl.truststore.location": str(trusted)})
    before = context().get_ca_certs(binary_form=True)
    if replaced:
        (tmp_path / "next.pem").write_bytes(NEW.cert_pem.bytes())
        (tmp_path / "next.pem").rename(trusted)
    else:
        trusted.write_bytes(NEW.cert_pem.bytes() + OLD.cert_pem.bytes())
    after = context().get_ca_certs(binary_form=True)
    assert after != before
    assert context() is context()


CUTS = {
    "empty": lambda whole: b"",
    "within the key": lambda whole: whole[:100],
    "within the certificate": lambda whole: whole[:-100],
    "another key": lambda whole: pem_of(NEW.issue_cert("x"))[:1000] + whole[1000:],
    "no file": None,
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_half_written_file_keeps_the_old_one(
    cut: str, trusted: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    keys = tmp_path / "keys.pem"
    keys.write_bytes(pem_of(KEY_STORE))
    names = {"ssl.truststore.location": str(trusted), "ssl.keystore.location": str(keys)}
    context = RenewedContext(names)
    before = context()
    change = CUTS[cut]
    if change is None:
        keys.unlink()
    else:
        keys.write_bytes(change(pem_of(OLD.issue_cert("client.example"))))
    assert context() is before
    assert context() is before
    (warning,) = [line for line in caplog.records if line.levelno == logging.WARNING]
    assert "KP0121" in warning.getMessage()
    assert str(keys) in warning.getMessage()
    assert "PRIVATE" not in warning.getMessage()
    keys.write_bytes(pem_of(OLD.issue_cert("client.example")))
    assert context() is not before
