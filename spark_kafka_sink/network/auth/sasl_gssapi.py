"""The mechanism GSSAPI (Kerberos, RFC 4752). The package ``gssapi`` calls the Kerberos libraries of
the operating system.

The first ticket of the client comes from ``kinit``, or the library gets it with a keytab. GSSAPI
could also encrypt the data. Kafka does not use this encryption: only TLS encrypts a connection.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError, ErrorCode, safe_text
from spark_kafka_sink.base.security.allow_lists import check_file
from spark_kafka_sink.base.security.local_files import UnusableFileError, refuse_unusable
from spark_kafka_sink.base.security.password import Text, looked_up, text_of, without_secrets
from spark_kafka_sink.config.logins.sasl_settings import KerberosSettings
from spark_kafka_sink.network.auth.login import FetchedCredential
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError, SaslMechanism

T = TypeVar("T")

#: The bit of "no security layer" in the server's offer and in our choice.
_NO_LAYER: Final = 1
#: The interval in ms after which the ticket for a broker is fetched again. The Kerberos library
#: returns the ticket from its cache, if it is still valid.
_REFRESH_MS: Final = 600_000
#: The codes of the Kerberos library's errors after which a retry may succeed. GSSAPI returns such a
#: code as the minor status, an unsigned 32-bit integer.
_KRB5: Final = 2**32 - 1_765_328_384
_PASSING: Final = frozenset(
    {
        _KRB5 + 21,  # client not yet valid
        _KRB5 + 29,  # a service is not available
        _KRB5 + 33,  # ticket not yet valid
        _KRB5 + 34,  # request is a replay
        _KRB5 + 156,  # no KDC can be contacted
        _KRB5 + 220,  # the name of the KDC can't be resolved
    }
)


class GssapiMechanism(SaslMechanism):
    """The mechanism GSSAPI. Client and broker exchange Kerberos messages until the security context
    is established. The last message says that no encryption by GSSAPI is used.
    """

    __slots__ = ("_chosen", "_context", "complete")

    name = "GSSAPI"
    hint = (
        "is the ticket still valid (klist), and does the broker have this principal? The service's"
        " name is kafka.sasl.kerberos.service.name, its host the broker's advertised name"
    )
    secrets: tuple[str, ...] = ()

    def __init__(self, context: Any) -> None:  # noqa: ANN401 - gssapi has no types
        self._context = context
        self._chosen = False
        self.complete = False

    def first(self) -> bytes:
        return self._step(None)

    def answer(self, challenge: bytes) -> bytes | None:
        if self._chosen:
            if challenge:
                raise SaslError("it continues after the security layer was chosen")
            self.complete = True
            return None
        if not self._context.complete:
            return self._step(challenge)
        offer = self._guarded(
            "its last message is not of this context", lambda c: c.unwrap(challenge).message
        )
        if len(offer) != 4 or not offer[0] & _NO_LAYER:
            raise SaslError("it insists on a security layer of GSSAPI, which Kafka does not have")
        self._chosen = True
        # No layer, so no size; no other identity than the ticket's.
        choice = bytes([_NO_LAYER, 0, 0, 0])
        return self._guarded(
            "our answer can't be made", lambda c: c.wrap(choice, encrypt=False).message
        )

    def _step(self, token: bytes | None) -> bytes:
        return self._guarded("Kerberos does not accept it", lambda c: c.step(token))

    def _guarded(self, what: str, call: Callable[[Any], Any]) -> bytes:
        """Calls ``call``, a function of the Kerberos library that returns bytes. Returns these
        bytes.

        Raises ConnectionError for an error of the library after which a retry may succeed. Converts
        every other error of the library to SaslError.
        """
        try:
            return bytes(call(self._context) or b"")
        except Exception as error:  # noqa: BLE001 - see above
            if _passes(error):
                raise ConnectionError(f"SASL {self.name}: {what}: {_name(error)}") from None
            raise SaslError(f"{what}: {_name(error)}") from None


def gssapi_contexts(
    settings: KerberosSettings,
) -> tuple[Callable[[str], FetchedCredential[str]], Callable[[str, str], GssapiMechanism]]:
    """Returns two functions for the settings:

    1. The first fetches the Kerberos ticket for a broker. It may block while it waits for the
       Kerberos server (KDC). The library keeps the ticket in its cache.
    2. The second creates the mechanism for a connection, with the ticket from this cache. It does
       not block.

    Both functions raise AuthenticationError if the library has no ticket for the broker. They raise
    ConnectionError if a retry may succeed, for example while no KDC can be contacted.

    The call of ``gssapi_contexts`` raises ConfigError if the package ``gssapi`` is not installed,
    or if the keytab file can't be used.
    """
    if settings.keytab:
        _check_keytab(settings.keytab)
    gssapi = _library()
    hidden = looked_up(settings.service_name, settings.keytab, settings.principal)

    def context(host: str) -> Any:  # noqa: ANN401 - gssapi has no types
        service = gssapi.Name(
            f"{text_of(settings.service_name)}@{host}", gssapi.NameType.hostbased_service
        )
        credentials = None
        if settings.keytab or settings.principal:
            name = None
            if settings.principal:
                name = gssapi.Name(text_of(settings.principal), gssapi.NameType.kerberos_principal)
            store = {"client_keytab": text_of(settings.keytab)} if settings.keytab else None
            credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
        return gssapi.SecurityContext(name=service, creds=credentials, usage="initiate")

    def guarded(host: str, use: Callable[[Any], T]) -> T:
        try:
            return use(context(host))
        except Exception as error:  # noqa: BLE001 - the library's own, of many kinds
            what = (
                f"no Kerberos ticket for {settings.service_name}@{host}:"
                f" {without_secrets(_name(error), hidden)}"
            )
            if _passes(error):
                raise ConnectionError(what) from None
            raise AuthenticationError(
                what,
                hint="kinit, or useKeyTab=true keyTab=... principal=... in kafka.sasl.jaas.config;"
                " the host is the broker's advertised name",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from None

    def fetch(host: str) -> FetchedCredential[str]:
        guarded(host, lambda made: made.step(None))
        return FetchedCredential(host, _REFRESH_MS)

    return fetch, lambda _, host: guarded(host, GssapiMechanism)


def _check_keytab(keytab: Text) -> None:
    """Raises ConfigError if the keytab file is not on the operator's allow-list, or if it is a file
    that could block the library, such as a pipe.
    """
    path, what = text_of(keytab).removeprefix("FILE:"), f"sasl.jaas.config: keyTab={keytab}"
    check_file(path, safe_text(what))
    try:
        refuse_unusable(path)
    except UnusableFileError as error:
        raise ConfigError(f"{safe_text(what)} can't be read: {error}") from None


def _passes(error: Exception) -> bool:
    """True for an error of the Kerberos library after which a retry may succeed. Java's client
    retries after the same errors (``KerberosError``).
    """
    # Java also retries if there are no credentials, because its own renewal of the ticket removes
    # them for a moment. Here, the library and kinit renew the ticket. So missing credentials are an
    # error at once.
    code = getattr(error, "min_code", None)
    return isinstance(code, int) and code % 2**32 in _PASSING


def _name(error: Exception) -> str:
    """A text for an error of the Kerberos library: its class and its message."""
    return f"{type(error).__name__}: {safe_text(str(error))}"


def _library() -> Any:  # noqa: ANN401 - gssapi has no types
    try:
        return importlib.import_module("gssapi")
    except ImportError:
        raise ConfigError(
            "sasl.mechanism=GSSAPI (Kerberos) needs the package gssapi",
            hint="pip install 'spark-kafka-sink[gssapi]' on the driver and on every executor, and"
            " the machine's Kerberos libraries (libgssapi-krb5-2, krb5-libs)",
            kind=Kind.MISSING_PACKAGE,
        ) from None
