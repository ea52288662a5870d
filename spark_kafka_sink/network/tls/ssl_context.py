"""Creates a TLS context from Kafka's ``ssl.`` options (Java's ``DefaultSslEngineFactory``): trusted
certificates, the client's certificate, TLS versions and cipher suites.

By default, the broker's certificate, its chain and its host name are verified, and TLS 1.2 or newer
is required.

Files are read on the machine on which the producer runs, so Spark executors also need them. The
private key is never written to a disk.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text
from spark_kafka_sink.config.logins.security_rules import TLS_1_3_SUITES
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.network.tls.key_stores import KeyMaterial, read_key_store, read_trust_store

_ALGORITHM = "ssl.endpoint.identification.algorithm"
_VERSIONS = {"TLSV1.2": ssl.TLSVersion.TLSv1_2, "TLSV1.3": ssl.TLSVersion.TLSv1_3}
#: Before TLS 1.2: known names, refused.
_OLD = {"SSLV2", "SSLV2HELLO", "SSLV3", "TLSV1", "TLSV1.1"}
_SUITE = re.compile(r"[A-Za-z0-9_-]+")
#: All suites of TLS 1.3 (RFC 8446, B.4).
_TLS_1_3 = TLS_1_3_SUITES | {"TLS_AES_128_CCM_SHA256", "TLS_AES_128_CCM_8_SHA256"}
#: In Java's list, but not a suite: a signal that OpenSSL sends anyway.
_NO_SUITE = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
#: Suites without authentication, or with pre-shared secrets, for which Kafka has no options.
_WITHOUT_CERTIFICATE = ("auth-null", "auth-psk", "auth-srp")
_CERTIFICATES = re.compile("-----BEGIN (TRUSTED |X509 )?CERTIFICATE-----")


def ssl_context(options: Mapping[str, object]) -> ssl.SSLContext:
    """Creates a TLS context from the ``ssl.`` options, which have Java's names. Options with
    secrets are Password objects.

    Raises ConfigError if a file can't be read or is not supported, and for an invalid value of an
    option. The error names the option and the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _set_versions(context, _names(options, "ssl.enabled.protocols"))
    _set_ciphers(context, _names(options, "ssl.cipher.suites"))
    algorithm = options.get(_ALGORITHM)
    if algorithm is None:
        algorithm = PRODUCER_OPTIONS[_ALGORITHM].default
    algorithm = str(algorithm).strip()
    if algorithm.lower() not in ("https", ""):
        raise ConfigError(
            f"ssl.endpoint.identification.algorithm={algorithm} is unknown",
            hint="https (the default) checks the broker's name; an empty value does not",
            kind=Kind.TLS_SETTING,
        )
    context.check_hostname = algorithm != ""
    # As in Java, any trusted certificate is a trust anchor: an intermediate's, the broker's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = read_trust_store(options)
    if trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    elif _CERTIFICATES.search(trusted.pem) is None:
        raise ConfigError(
            f"{trusted.source} holds no certificate",
            hint="PEM certificates begin with -----BEGIN CERTIFICATE-----; a PKCS12 store with a "
            "key alone has no trusted certificate",
            kind=Kind.KEY_STORE,
        )
    else:
        try:
            context.load_verify_locations(cadata=trusted.pem)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{trusted.source} holds no usable certificate ({error.reason or error})",
                hint="PEM certificates begin with -----BEGIN CERTIFICATE-----",
                kind=Kind.KEY_STORE,
            ) from error
    key = read_key_store(options)
    if key is not None:
        _load_key(context, key)
    return context


def _names(options: Mapping[str, object], name: str) -> list[str]:
    value = options.get(name)
    if value is None:
        return []
    items = value if isinstance(value, (list, tuple)) else str(value).split(",")
    return [item for item in (str(i).strip() for i in items) if item]


def _set_versions(context: ssl.SSLContext, names: list[str]) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not names:
        return
    wanted = []
    for name in names:
        version = _VERSIONS.get(name.upper())
        if version is not None:
            wanted.append(version)
        elif name.upper() not in _OLD:
            raise ConfigError(
                f"ssl.enabled.protocols: {name} is unknown",
                hint="TLSv1.2 and TLSv1.3 are supported",
                kind=Kind.TLS_SETTING,
            )
    if not wanted:
        raise ConfigError(
            f"ssl.enabled.protocols={','.join(names)} has nothing that is safe",
            hint="TLSv1.2 and TLSv1.3 are supported; older versions are insecure and refused",
            kind=Kind.TLS_SETTING,
        )
    context.minimum_version, context.maximum_version = min(wanted), max(wanted)


def _set_ciphers(context: ssl.SSLContext, names: list[str]) -> None:
    """Enables only the cipher suites in ``names``.

    Raises ConfigError for a name that is not a cipher suite. OpenSSL would read such a name as an
    expression, which could enable suites without certificates or lower the security level.
    """
    # The suites of TLS 1.3 can't be chosen through Python's ssl before 3.15; all of them are safe.
    newer = [name for name in names if name.upper() in _TLS_1_3]
    older = [
        _openssl_suite(context, name)
        for name in names
        if name.upper() not in (*_TLS_1_3, _NO_SUITE)
    ]
    if not newer and not older:
        return
    if older:
        context.set_ciphers(":".join(older))
    # As in Java, a version without an enabled suite is not offered.
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    low, high = context.minimum_version, context.maximum_version
    if low is ssl.TLSVersion.TLSv1_3 and high is ssl.TLSVersion.TLSv1_2:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(names)} has no suite of ssl.enabled.protocols",
            hint="suites of TLSv1.3 have no _WITH_ in their names, suites of TLSv1.2 have it",
            kind=Kind.TLS_SETTING,
        )


def _openssl_suite(context: ssl.SSLContext, name: str) -> str:
    """Returns OpenSSL's name of a cipher suite for TLS 1.2 and older. Raises ConfigError if the
    suite does not use a certificate or does not encrypt.

    The function tries the suite in ``context``, and so replaces the enabled suites of ``context``.
    """
    try:
        if _SUITE.fullmatch(name) is None:
            raise ValueError
        wanted = _openssl_name(name)
        context.set_ciphers(wanted)
        # "ALL" and "HIGH" are words of OpenSSL's language that look like names.
        (suite,) = (c for c in context.get_ciphers() if c["protocol"] != "TLSv1.3")
        if suite["name"] != wanted:
            raise ValueError
    except (ssl.SSLError, ValueError):
        raise ConfigError(
            f"ssl.cipher.suites: '{safe_text(name, 80)}' is not supported by OpenSSL here",
            hint="use Java's names (TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384) or OpenSSL's "
            "(ECDHE-RSA-AES256-GCM-SHA384), with commas between them",
            kind=Kind.TLS_SETTING,
        ) from None
    if suite["auth"] in _WITHOUT_CERTIFICATE or not suite["strength_bits"]:
        what = "encrypts nothing" if not suite["strength_bits"] else "takes no certificate"
        raise ConfigError(
            f"ssl.cipher.suites: {name} {what}, and is refused",
            hint="remove ssl.cipher.suites: OpenSSL's own choice is good",
            kind=Kind.TLS_SETTING,
        )
    return wanted


def _openssl_name(name: str) -> str:
    """Converts Java's name of a suite to OpenSSL's name: ``TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384``
    becomes ``ECDHE-RSA-AES256-GCM-SHA384``.
    """
    if not name.upper().startswith("TLS_"):
        return name
    exchange, _, cipher = name.upper().removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    parts = cipher if exchange == "RSA" else f"{exchange}_{cipher}"
    return parts.replace("_", "-")


def _load_key(context: ssl.SSLContext, key: KeyMaterial) -> None:
    password = key.password.value if key.password is not None else ""
    try:
        # Python's ssl reads a private key only from a file. So the key is written to a file in
        # memory.
        with (
            _in_memory_file(key.certificates.encode()) as certificates,
            _in_memory_file(key.private_key.encode()) as private_key,
        ):
            # Always pass a password function: without one, OpenSSL would prompt on the terminal.
            context.load_cert_chain(certificates, private_key, password=lambda: password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ConfigError(
            f"the private key of {key.source} can't be used ({reason})",
            hint="is ssl.key.password right, and does the certificate belong to the key?",
            kind=Kind.KEY_STORE,
        ) from None  # the cause may show what it was given
    except OSError as error:
        raise ConfigError(
            f"the private key of {key.source} can't be used ({error})", kind=Kind.KEY_STORE
        ) from None


@contextmanager
def _in_memory_file(content: bytes) -> Iterator[str]:
    """A context manager that creates a file with ``content`` in memory, and yields its path.
    Processes of other users can't read the file.
    """
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("kprod", os.MFD_CLOEXEC)
        try:
            os.write(handle, content)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    # Without memfd (macOS): a pipe, which holds 64 KiB; OpenSSL reads it once.
    reader, writer = os.pipe()
    try:
        try:
            os.set_blocking(writer, False)
            os.write(writer, content)
        finally:
            os.close(writer)
        yield str(Path("/dev/fd") / str(reader))
    finally:
        os.close(reader)
