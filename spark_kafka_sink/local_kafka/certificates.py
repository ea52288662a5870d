"""Creates the certificates for a local Kafka with TLS. Each cluster has a private CA of its own.

A PEM file has a private key and its certificate chain, as brokers and clients read them. The module
needs the package ``cryptography``, from the extra ``[tls]``. So it is imported only for a secure
cluster.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

#: Longer than any test or demo, too short for production use.
_LIFETIME = dt.timedelta(days=7)
#: With a clock that runs a little late, a new certificate must not be "not valid yet".
_SKEW = dt.timedelta(hours=1)


class CertificateAuthority:
    """A certificate authority. Its private key is only in memory. Its certificate is written to the
    file ``path``, in PEM.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("local_kafka CA")
        ca = x509.BasicConstraints(ca=True, path_length=0)
        # Python 3.13 requires it (VERIFY_X509_STRICT).
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(ca, critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, SHA256())
        )
        path.write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def issue(self, path: Path, common_name: str, hosts: Sequence[str] = ()) -> Path:
        """Creates a private key and a certificate for it. Writes the key (PKCS#8) and the
        certificate chain to the file ``path``, which only the owner can read. Returns ``path``.

        * ``common_name``: for a client, the name of the user.
        * ``hosts``: for a broker, its DNS names and IP addresses.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(common_name), key.public_key()).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
            critical=False,
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.touch(mode=0o600)
        chain = (certificate, self._certificate)
        path.write_bytes(private + b"".join(c.public_bytes(Encoding.PEM) for c in chain))
        return path

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(tz=dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _SKEW)
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
