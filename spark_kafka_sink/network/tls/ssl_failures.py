"""Explains a TLS failure with the names of Kafka's options.

This module has a table of failures. The caller closes the connection.
"""

from __future__ import annotations

import ssl

#: The findings of OpenSSL's verification (X509_V_ERR_...): text and hint.
_VERIFICATION = {
    9: ("the broker's certificate is not valid yet", "check the clocks of broker and client"),
    10: ("the broker's certificate has expired", "have it renewed"),
    18: (
        "the broker's certificate is self-signed and not trusted",
        "put it into ssl.truststore.location, or the CA that signs the brokers' certificates",
    ),
    19: (
        "the broker's certificate comes from a CA that is not trusted",
        "put that CA into ssl.truststore.location",
    ),
    20: (
        "the broker's certificate comes from a CA that is not trusted",
        "put that CA into ssl.truststore.location",
    ),
    21: (
        "the broker's certificate comes from a CA that is not trusted",
        "put that CA, and the CAs between, into ssl.truststore.location",
    ),
    23: ("the broker's certificate was revoked", "have it replaced"),
    62: (
        "the broker's certificate does not name this host",
        (
            "it must carry the advertised name in its subjectAltName; "
            "ssl.endpoint.identification.algorithm set to nothing skips this check"
        ),
    ),
    64: (
        "the broker's certificate does not name this address",
        (
            "it must carry the address as an IP in its subjectAltName, or the broker must "
            "advertise the name that it carries"
        ),
    ),
}

_NO_CERTIFICATE = (
    "the broker requires a client certificate, and none was given",
    "set ssl.keystore.location (or ssl.keystore.key and ssl.keystore.certificate.chain)",
)
_REFUSED_CERTIFICATE = (
    "the broker does not accept our client certificate",
    "is it signed by a CA in the broker's truststore, and still valid?",
)
_VERSIONS = (
    "broker and client have no TLS version in common",
    "TLSv1.2 and TLSv1.3 are spoken here; see ssl.enabled.protocols on both sides",
)
#: OpenSSL's reason names: text and hint.
_REASONS = {
    "WRONG_VERSION_NUMBER": (
        "the port does not speak TLS",
        "is it a PLAINTEXT or SASL_PLAINTEXT port? Then set security.protocol to that",
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NO_CERTIFICATE,
    "TLSV1_ALERT_UNKNOWN_CA": _REFUSED_CERTIFICATE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _REFUSED_CERTIFICATE,
    "SSLV3_ALERT_BAD_CERTIFICATE": (
        "the broker does not accept our client certificate, or requires one and none was given",
        "see ssl.keystore.location",
    ),
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": ("our client certificate has expired", "have it renewed"),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": ("our client certificate was revoked", "have it replaced"),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the broker refused the handshake: no cipher in common, or no client certificate",
        "see ssl.cipher.suites and ssl.keystore.location",
    ),
    "TLSV1_ALERT_PROTOCOL_VERSION": _VERSIONS,
    "UNSUPPORTED_PROTOCOL": _VERSIONS,
    "NO_PROTOCOLS_AVAILABLE": _VERSIONS,
    "TLSV1_ALERT_ACCESS_DENIED": _REFUSED_CERTIFICATE,
}


def explain(error: ssl.SSLError) -> tuple[str, str | None]:
    """Explains a TLS failure in two texts, which have the names of Kafka's options: the cause of
    the failure, and a hint how to fix it. The hint is None if no fix is known.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        known = _VERIFICATION.get(error.verify_code)
        if known is not None:
            return known
        return f"the broker's certificate is not accepted ({error.verify_message})", None
    reason = error.reason or "unknown"
    return _REASONS.get(reason, (reason.lower().replace("_", " "), None))
