"""The mechanisms SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677). The password itself is never
sent.

This module has the client's part of an exchange. The broker also proves that it knows the password:
a response without the right signature is an error.

**Two forms of a password.** RFC 5802 requires that names and passwords are first normalized by
SASLprep (RFC 4013). Kafka's brokers and tools do not normalize them (``ScramFormatter.normalize``).
The two forms differ only for a few characters that are not ASCII. :class:`ScramLogin` uses both:

1. The first connection uses the password without normalization.
2. If the broker rejects this form and the normalized form is different, the next connection uses
   the normalized form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.base.security.password import Password, Text, looked_up, text_of
from spark_kafka_sink.network.auth.login import Login
from spark_kafka_sink.network.auth.sasl_mechanism import (
    CHECK_THE_USER,
    SaslError,
    SaslMechanism,
)
from spark_kafka_sink.network.auth.saslprep import saslprep

#: The hash function of each mechanism.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

#: The minimum number of iterations of Kafka and of the RFC. With fewer iterations, an eavesdropper
#: could guess passwords.
MIN_ITERATIONS: Final = 4096
#: The maximum number of iterations, which takes about half a second. With more iterations, a broker
#: could keep the network thread busy. Kafka's own maximum is 16384.
MAX_ITERATIONS: Final = 1_000_000
#: The maximum length of a message. No broker sends salts and nonces that are so long.
_LONGEST_MESSAGE: Final = 4096

#: The RFC's list of values of ``e=``; other texts are not repeated.
_SERVER_ERRORS: Final = frozenset(
    (
        "invalid-encoding",
        "extensions-not-supported",
        "invalid-proof",
        "channel-bindings-dont-match",
        "server-does-support-channel-binding",
        "channel-binding-not-supported",
        "unsupported-channel-binding-type",
        "unknown-user",
        "invalid-username-encoding",
        "no-resources",
        "other-error",
    )
)
#: No channel binding, and none wished for: Kafka has none.
_GS2_HEADER: Final = "n,,"


def _new_nonce() -> str:
    return secrets.token_urlsafe(24)


class ScramMechanism(SaslMechanism):
    """One SCRAM exchange with four messages, which RFC 5802 calls client-first, server-first,
    client-final and server-final.
    """

    hint = CHECK_THE_USER

    __slots__ = (
        "_client_first_bare",
        "_hash",
        "_nonce",
        "_on_refusal",
        "_password",
        "_server_signature",
        "_username",
        "complete",
        "name",
    )

    def __init__(
        self,
        name: str,
        username: Text,
        password: Password,
        *,
        nonce: Callable[[], str] = _new_nonce,
        on_refusal: Callable[[], bool] = lambda: False,
    ) -> None:
        self.name = name
        self.complete = False
        self._hash = HASHES[name]
        self._username = username
        self._password = password
        self._on_refusal = on_refusal
        self._nonce = nonce()
        self._client_first_bare = f"n={_sasl_name(text_of(username))},r={self._nonce}"
        #: Known once the broker has sent its salt.
        self._server_signature: bytes | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        return (self._password.value, *looked_up(self._username))

    def refused(self) -> bool:
        return self._on_refusal()

    def first(self) -> bytes:
        return (_GS2_HEADER + self._client_first_bare).encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self.complete:
            raise SaslError("it continues after the exchange is complete")
        text = _text(challenge)
        if self._server_signature is None:
            return self._client_final(text)
        self._verify(text)
        self.complete = True
        return None

    def _client_final(self, server_first: str) -> bytes:
        fields = _fields(server_first, "r", "s", "i")
        nonce = fields["r"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("its nonce does not begin with ours: it answers another client")
        salt = _base64(fields["s"], "salt")
        if not salt:
            raise SaslError("its salt is empty")
        iterations = _iterations(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.value.encode(), salt, iterations)
        channel = base64.b64encode(_GS2_HEADER.encode()).decode()
        without_proof = f"c={channel},r={nonce}"
        message = f"{self._client_first_bare},{server_first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = self._hmac(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str) -> None:
        if server_final.startswith("e="):
            reason = server_final[2:].split(",", maxsplit=1)[0]
            known = reason if reason in _SERVER_ERRORS else "other-error"
            raise SaslError(f"it refuses the proof ({known})")
        signature = _base64(_fields(server_final, "v")["v"], "signature")
        assert self._server_signature is not None
        if not hmac.compare_digest(signature, self._server_signature):
            raise SaslError("its signature is wrong: it does not have the password")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash).digest()


class ScramLogin(Login):
    """The login for SCRAM. It remembers which form of name and password the broker accepts: the
    text of the options, or this text normalized by SASLprep. Only the network thread uses it.
    """

    __slots__ = ("_form", "_forms", "_mechanism")

    def __init__(self, mechanism: str, username: Text, password: Password) -> None:
        self._mechanism = mechanism
        self._forms: list[tuple[Text, Password]] = [(username, password)]
        self._form = 0
        name, word = saslprep(text_of(username)), saslprep(password.value)
        if name and word and (name, word) != (text_of(username), password.value):
            # The prepared name is no more to be shown than the one it is made of.
            hidden = isinstance(username, Password)
            self._forms.append((Password(name, f"{username}") if hidden else name, Password(word)))

    def mechanism(self, host: str, now: int) -> ScramMechanism:
        del host, now
        form = self._form
        return ScramMechanism(
            self._mechanism, *self._forms[form], on_refusal=lambda: self._refused(form)
        )

    def _refused(self, form: int) -> bool:
        if self._form == form and form + 1 < len(self._forms):
            self._form += 1
        return self._form > form


def _sasl_name(username: str) -> str:
    return username.replace("=", "=3D").replace(",", "=2C")


def _text(message: bytes) -> str:
    if len(message) > _LONGEST_MESSAGE:
        raise SaslError("its message is longer than any of SCRAM's")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("its message is not UTF-8") from None


def _fields(message: str, *names: str) -> dict[str, str]:
    """Parses a SCRAM message such as ``r=...,s=...,i=4096``. Returns a dict from each of ``names``,
    such as ``r``, to the value of this attribute.

    These attributes must be the first in the message, in this order. Later attributes are optional
    extensions, and are ignored. Raises SaslError for any other message. An example is a message
    with a mandatory extension, which begins with ``m=``.
    """
    parts = message.split(",")
    if parts[0].startswith("m="):
        raise SaslError("it requires an extension of SCRAM that is not supported")
    found: dict[str, str] = {}
    for name, part in zip(names, parts, strict=False):
        key, equals, value = part.partition("=")
        if key != name or not equals:
            break
        found[name] = value
    if len(found) < len(names):
        raise SaslError("its message is not one of SCRAM's")
    return found


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslError(f"its {what} is not base64") from None


def _iterations(text: str) -> int:
    # isdigit alone takes digits of other scripts, and int() underscores and blanks.
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_ITERATIONS))):
        raise SaslError(f"its iteration count is not between {MIN_ITERATIONS} and {MAX_ITERATIONS}")
    count = int(text)
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise SaslError(
            f"it requires {count} iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
        )
    return count
