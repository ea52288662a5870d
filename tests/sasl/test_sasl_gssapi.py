"""GSSAPI's messages over a stand-in for the package ``gssapi``, whose Kerberos is two words.

No KDC is asked here: what is shown is the order of the messages, and every way out of it.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.config.logins.sasl_settings import KerberosSettings
from spark_kafka_sink.network.auth.sasl_authenticator import SaslClientAuthenticator
from spark_kafka_sink.network.auth.sasl_gssapi import gssapi_contexts
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError
from tests.sasl.scripted_broker import api_versions, handshake, hear


class GSSError(Exception):
    """As the library's: a major and a minor reason, the latter with its code."""

    def __init__(self, text, min_code=0):
        super().__init__(text)
        self.min_code = min_code


#: Of MIT's libkrb5 1.20; the first one comes from gss_acquire_cred and gss_init_sec_context when
#: nothing listens on the KDC's port.
PASSING = {
    2529639068: "Cannot contact any KDC for requested realm",
    2529639132: "Cannot resolve network address for KDC in requested realm",
    2529638933: "Client not yet valid - try again later",
    2529638941: "A service is not available that is required to process the request",
    2529638945: "Ticket not yet valid",
    2529638946: "Request is a replay",
}


class Library:
    """What of ``gssapi`` is used. Its context stands after "who" was answered by "you"."""

    NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")

    def __init__(self):
        self.made = []
        self.ticket = True
        self.failure = None

    def Name(self, text, kind):
        return (text, kind)

    def Credentials(self, **arguments):
        return arguments

    def SecurityContext(self, **arguments):
        self.made.append(arguments)
        return Context(self)


class Context:
    def __init__(self, library):
        self.library = library
        self.complete = False

    def step(self, token):
        if self.library.failure is not None:
            raise self.library.failure
        if not self.library.ticket:
            raise GSSError("No credentials cache found")
        if token is None:
            return b"who"
        if token != b"you":
            raise GSSError("Wrong principal")
        self.complete = True
        return None

    def wrap(self, message, encrypt):
        assert not encrypt
        return SimpleNamespace(message=b"<" + message + b">")

    def unwrap(self, message):
        if message[:1] + message[-1:] != b"<>":
            raise GSSError("A token was invalid")
        return SimpleNamespace(message=message[1:-1])


@pytest.fixture
def library(monkeypatch):
    made = Library()
    monkeypatch.setitem(sys.modules, "gssapi", made)
    return made


def test_the_context_comes_first_and_then_no_security_layer(library):
    fetch, make = gssapi_contexts(KerberosSettings("kafka", "/etc/k.keytab", "me@EXAMPLE"))
    mechanism = make(fetch("b1.example").value, "b1.example")
    assert (
        library.made
        == [
            {
                "name": ("kafka@b1.example", "service"),
                "creds": {
                    "name": ("me@EXAMPLE", "principal"),
                    "usage": "initiate",
                    "store": {"client_keytab": "/etc/k.keytab"},
                },
                "usage": "initiate",
            }
        ]
        * 2
    )
    assert mechanism.first() == b"who"
    assert mechanism.answer(b"you") == b""
    assert mechanism.answer(b"<\x07\x00\x10\x00>") == b"<\x01\x00\x00\x00>"
    assert not mechanism.complete
    assert mechanism.answer(b"") is None
    assert mechanism.complete


def test_a_keytab_alone_is_that_of_its_first_principal(library):
    fetch, _ = gssapi_contexts(KerberosSettings("kafka", "/etc/k.keytab"))
    fetch("b")
    assert library.made[0]["creds"] == {
        "name": None,
        "usage": "initiate",
        "store": {"client_keytab": "/etc/k.keytab"},
    }


def test_the_ticket_cache_needs_no_names(library):
    fetch, _ = gssapi_contexts(KerberosSettings("kafka"))
    fetch("b")
    assert library.made[0]["creds"] is None


def test_a_missing_ticket_is_an_error_that_says_what_to_do(library):
    library.ticket = False
    fetch, _ = gssapi_contexts(KerberosSettings("kafka"))
    with pytest.raises(AuthenticationError, match="kafka@b1: GSSError: No credentials") as raised:
        fetch("b1")
    assert "kinit" in raised.value.hint


@pytest.mark.parametrize("code", PASSING)
def test_a_kdc_that_is_down_for_a_moment_is_asked_again(library, code):
    """By another connection, later: a producer survives it, as Java's does."""
    fetch, make = gssapi_contexts(KerberosSettings("kafka"))
    mechanism = make(fetch("b1").value, "b1")
    library.failure = GSSError(PASSING[code], code)
    with pytest.raises(ConnectionError, match=f"kafka@b1: GSSError: {PASSING[code]}"):
        fetch("b1")
    with pytest.raises(ConnectionError, match=f"GSSAPI: Kerberos .*: {PASSING[code]}"):
        mechanism.first()
    library.failure = GSSError("Server not found in Kerberos database", 2529638919)
    with pytest.raises(AuthenticationError, match="Server not found"):
        fetch("b1")
    with pytest.raises(SaslError, match="Server not found"):
        mechanism.first()


def test_a_ticket_that_expires_between_connections_is_an_error(library):
    fetch, make = gssapi_contexts(KerberosSettings("kafka"))
    mechanism = make(fetch("b").value, "b")
    library.ticket = False
    sasl = SaslClientAuthenticator("b:1", None, encrypted=True)
    hello = hear(sasl.start(mechanism))
    second = hear(sasl.receive(memoryview(api_versions(hello)), 0))
    with pytest.raises(AuthenticationError, match="it can't begin: Kerberos") as raised:
        sasl.receive(memoryview(handshake(second, "GSSAPI")), 0)
    assert "klist" in raised.value.hint
    library.SecurityContext = None
    with pytest.raises(AuthenticationError, match="no Kerberos ticket for kafka@b: TypeError"):
        make("b", "b")


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([b"me"], "Kerberos does not accept it: GSSError: Wrong principal"),
        ([b"you", b"(\x01\x00\x00\x00)"], "not of this context"),
        ([b"you", b"<\x06\x00\x10\x00>"], "insists on a security layer"),
        ([b"you", b"<\x01>"], "insists on a security layer"),
        ([b"you", b"<\x01\x00\x00\x00>", b"more"], "after the security layer"),
    ],
)
def test_a_broker_that_breaks_the_order_is_not_believed(library, messages, words):
    fetch, make = gssapi_contexts(KerberosSettings("kafka"))
    mechanism = make(fetch("b").value, "b")
    mechanism.first()
    for message in messages[:-1]:
        mechanism.answer(message)
    with pytest.raises(SaslError, match=words):
        mechanism.answer(messages[-1])
    assert not mechanism.complete


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match="GSSAPI") as raised:
        gssapi_contexts(KerberosSettings("kafka"))
    assert "spark-kafka-sink[gssapi]" in raised.value.hint
    assert "libgssapi-krb5-2" in raised.value.hint
