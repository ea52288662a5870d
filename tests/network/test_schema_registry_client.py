"""The client of a schema registry, before registries that refuse, hang and lie."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time

import pytest
import trustme

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, NoRegistryAnswerError, SchemaRegistryError
from spark_kafka_sink.base.security.allow_lists import URLS, NotAllowedError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.network.schema_registry import LONGEST_ANSWER, ConfluentRegistry
from tests.network.fake_registry import FakeRegistry, same
from tests.network.loopback import serving
from tests.real_kafka import AT_ONCE_S
from tests.waiting import PATIENCE

SCHEMA = {"schema": '"string"', "id": 3}
SECRET = "c4nary-secret"


def client(url, limit_ms=int(60_000 * PATIENCE), **options):
    given = {"schema.registry.request.timeout.ms": 10_000, "normalize.schemas": True}
    return ConfluentRegistry(given | {"schema.registry.url": url} | options, limit_ms)


def test_its_requests_are_confluents():
    with FakeRegistry(same(200, SCHEMA)) as registry:
        asked = client(registry.url)
        assert asked.by_id(3).text == '"string"'
        assert asked.latest("a/b").id == 3
        assert asked.id_of("s", '"string"', "AVRO", register=False) == 3
        plain = client(registry.url, **{"normalize.schemas": False})
        assert plain.id_of("s", "message", "PROTOBUF", register=True) == 3
    assert [(method, path, body) for method, path, body, _ in registry.requests] == [
        ("GET", "/api/schemas/ids/3", None),
        ("GET", "/api/subjects/a%2Fb/versions/latest", None),
        ("POST", "/api/subjects/s?normalize=true", {"schema": '"string"'}),
        ("POST", "/api/subjects/s/versions", {"schema": "message", "schemaType": "PROTOBUF"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("subject", "path"), [("a b?&#", "a%20b%3F%26%23"), ("\u00e4", "%C3%A4"), ("\ud800", "%3F")]
)
def test_a_subject_of_any_text_is_one_part_of_the_path(subject, path):
    with FakeRegistry(same(200, SCHEMA)) as registry:
        client(registry.url).latest(subject)
    assert registry.requests[0][1] == f"/api/subjects/{path}/versions/latest"


def test_what_is_not_there_is_none():
    with FakeRegistry(same(404, {"error_code": 40401, "message": "no subject"})) as registry:
        assert client(registry.url).latest("s") is None
        assert client(registry.url).id_of("s", "x", "AVRO", register=False) is None


@pytest.mark.parametrize("status", [401, 403, 404, 409, 422, 501])
def test_a_refusal_has_the_registrys_reason_and_is_final(status):
    body = {"message": "because of reasons"}
    with (
        FakeRegistry(same(status, body)) as registry,
        pytest.raises(SchemaRegistryError, match=f"answered {status}: because of reasons"),
    ):
        client(registry.url).latest("s")
    assert len(registry.requests) == 1


def test_the_path_that_a_hint_asks_for_finds_the_registry():
    def answer(method, path, body):
        there = path.startswith("/api/")
        return (200, {}, SCHEMA) if there else (404, {}, {"message": "no such resource"})

    with FakeRegistry(answer) as registry:
        with pytest.raises(SchemaRegistryError, match="answered 404") as raised:
            client(registry.url.removesuffix("/api")).latest("s")
        assert raised.value.hint == "is schema.registry.url right, with its path?"
        assert client(registry.url).latest("s").id == 3


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_tried_three_times(status):
    with (
        FakeRegistry(same(status, {"message": "busy"})) as registry,
        pytest.raises(NoRegistryAnswerError, match=f"it answered {status}: busy"),
    ):
        client(registry.url).latest("s")
    assert len(registry.requests) == 3


def test_the_next_address_is_tried_when_one_does_not_answer():
    with FakeRegistry(same(200, SCHEMA)) as registry, socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and never listens
        url = f"http://127.0.0.1:{held.getsockname()[1]},{registry.url}"
        assert client(url).by_id(3).id == 3


def test_a_redirect_is_refused_and_not_followed():
    with (
        FakeRegistry(same(302, b"", Location="http://127.0.0.1:1/elsewhere")) as registry,
        pytest.raises(SchemaRegistryError, match="answered 302") as raised,
    ):
        client(registry.url).by_id(3)
    assert "redirects are not followed" in raised.value.hint
    assert len(registry.requests) == 1


def test_an_answer_of_100_mb_is_left_after_five():
    body = b'{"schema": "' + b"x" * (LONGEST_ANSWER + 1_000_000) + b'"}'
    with (
        FakeRegistry(same(200, body)) as registry,
        pytest.raises(SchemaRegistryError, match="with more than 5242880 bytes"),
    ):
        client(registry.url).by_id(3)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", [], {"id": 3}, {"schema": 4, "id": 3}, b"[" * 100_000]
)
def test_an_answer_that_is_no_schema_is_an_error(body):
    with FakeRegistry(same(200, body)) as registry, pytest.raises(SchemaRegistryError):
        client(registry.url).by_id(3)


AUTHORITY, STRANGER = trustme.CA(), trustme.CA()


def certified(name="127.0.0.1", authority=AUTHORITY, clients_of=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    if clients_of is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        clients_of.configure_trust(context)
    return context


def trusted(authority=AUTHORITY):
    return {"schema.registry.ssl.truststore.certificates":
            Password(authority.cert_pem.bytes().decode())}  # fmt: skip


def test_a_registry_over_tls_must_prove_itself():
    with FakeRegistry(same(200, SCHEMA), tls=certified()) as registry:
        login = {"basic.auth.user.info": Password("me:it")}
        assert client(registry.url, **trusted(), **login).by_id(3).id == 3
        for options in ({}, trusted(STRANGER)):
            with pytest.raises(SchemaRegistryError, match=r"can't be trusted: .* not") as raised:
                client(registry.url, **options, **login).by_id(3)
            assert raised.value.hint == "another CA goes to schema.registry.ssl.truststore.location"
    assert len(registry.requests) == 1, "one that is not trusted gets no password"


@pytest.mark.parametrize("of", ["registry", "token endpoint"])
def test_a_store_of_the_registry_is_named_as_it_was_given(of, tmp_path):
    """The brokers' store, kafka.ssl.truststore.location, may be right."""
    path = tmp_path / "ssl.d" / "ca.pem"
    stores = [
        ({"truststore.location": str(path)}, "", f"truststore.location={path} can't be read"),
        ({"truststore.certificates": Password("x"), "truststore.type": "PKCS12"},
         "set schema.registry.ssl.truststore.type to PEM", "truststore.type=PKCS12, but"),
    ]  # fmt: skip
    for store, hint, said in stores:
        given = {f"schema.registry.ssl.{name}": value for name, value in store.items()}
        url = "https://127.0.0.1:1"
        login = {} if of == "registry" else with_token_of(url)
        with pytest.raises(ConfigError) as raised:
            client(url, **given, **login).by_id(3)
        assert raised.value.message.startswith(f"schema.registry.ssl.{said}")
        assert raised.value.kind is Kind.KEY_STORE
        assert hint in raised.value.hint


def test_a_registry_with_another_ones_certificate_is_refused():
    with (
        FakeRegistry(same(200, SCHEMA), tls=certified("elsewhere.example")) as registry,
        pytest.raises(SchemaRegistryError, match="does not name this address") as raised,
    ):
        client(registry.url, **trusted()).by_id(3)
    assert raised.value.hint == "it must carry the host of the URL in its subjectAltName"
    assert not registry.requests


def test_a_registry_that_wants_a_certificate_gets_ours():
    mine = AUTHORITY.issue_cert("client.example")
    chain = b"".join(pem.bytes() for pem in mine.cert_chain_pems).decode()
    own = {
        "schema.registry.ssl.keystore.key": Password(mine.private_key_pem.bytes().decode()),
        "schema.registry.ssl.keystore.certificate.chain": Password(chain),
    }
    with FakeRegistry(same(200, SCHEMA), tls=certified(clients_of=AUTHORITY)) as registry:
        assert client(registry.url, **trusted(), **own).by_id(3).id == 3
        with pytest.raises(NoRegistryAnswerError):
            client(registry.url, **trusted()).by_id(3)
    assert len(registry.requests) == 1


def test_https_to_a_registry_that_speaks_http_is_an_error():
    with FakeRegistry(same(200, SCHEMA)) as registry, pytest.raises(NoRegistryAnswerError):
        client(registry.url.replace("http:", "https:"), **trusted()).by_id(3)


def test_an_answer_that_drips_is_bounded():
    """Each byte comes in time, and all of them would take for ever."""

    def drip(connection, over):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not over.wait(0.02):
            connection.sendall(b" ")

    with serving(drip) as (host, port):
        start = time.monotonic()
        with pytest.raises(NoRegistryAnswerError, match="took more than 200 ms"):
            client(f"http://{host}:{port}", **{"schema.registry.request.timeout.ms": 200}).by_id(3)
        assert time.monotonic() - start < AT_ONCE_S


@pytest.mark.parametrize("found", ["3", 0, -1, 2**31, True, None, 3.5])
def test_an_id_that_is_none_is_an_error(found):
    with (
        FakeRegistry(same(200, SCHEMA | {"id": found})) as registry,
        pytest.raises(SchemaRegistryError, match="without the id"),
    ):
        client(registry.url).id_of("s", '"string"', "AVRO", register=False)


def test_a_registry_that_hangs_is_bounded():
    """By the time of a request, three times, and by the limit of all."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        for limit_ms, request_ms, says in (
            (60_000, 100, r"100 ms \(schema\.registry\.request\.timeout\.ms\)$"),
            (300, 10_000, r"more than \d+ ms$"),
        ):
            start = time.monotonic()
            options = {"schema.registry.request.timeout.ms": request_ms}
            with pytest.raises(NoRegistryAnswerError) as caught:
                client(url, limit_ms, **options).by_id(3)
            assert re.search(says, caught.value.message)
            assert time.monotonic() - start < AT_ONCE_S


def test_a_silent_resolver_does_not_hold_a_request(monkeypatch):
    """getaddrinfo takes 15 s when a name server is silent."""
    gate = threading.Event()
    real = socket.getaddrinfo

    def lookup(host, *args, **options):
        if host == "slow.example":
            assert gate.wait(60)
        return real("127.0.0.1" if host == "slow.example" else host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    start = time.monotonic()
    try:
        with pytest.raises(NoRegistryAnswerError, match="took more than"):
            client("http://slow.example:1", 300).by_id(3)
        assert time.monotonic() - start < AT_ONCE_S
    finally:
        gate.set()


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"ruleSet": {"domainRules": [{"name": "encrypt"}]}}, "unencrypted"),
        ({"ruleSet": "?"}, "unencrypted"),
        ({"ruleSet": {"domainRules": [{"mode": "WRITEREAD"}, {"mode": "READ"}]}}, "unencrypted"),
        ({"ruleSet": {"encodingRules": [{"mode": "WRITE"}]}}, "unencrypted"),
        ({"ruleSet": {"domainRules": {"name": "a"}}}, "unencrypted"),
    ],
)
def test_rules_of_writers_make_a_schema_unusable(more, says):
    with FakeRegistry(same(200, SCHEMA | more)) as registry:
        assert says in client(registry.url).by_id(3).unusable


#: /subjects/... of the fake: their schemas, and what these refer to.
HELD = {
    "order": ("{order}", [("Line", "line", 2), ("Part", "part", 1)]),
    "line": ("{line}", [("Part", "part", 1)]),
    "part": ("{part}", []),
}


def held(_, path, __):
    name = "order" if path.endswith("/schemas/ids/3") else path.split("/")[3]
    text, references = HELD[name]
    named = [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references]
    return 200, {}, {"id": 3, "schema": text, "references": named}


def test_references_are_looked_up_each_once_after_those_they_need():
    with FakeRegistry(held) as registry:
        found = client(registry.url).by_id(3)
        assert found.references == (("Part", "{part}"), ("Line", "{line}"))
        asked = [path.removeprefix("/api") for _, path, *_ in registry.requests]
    assert asked == ["/schemas/ids/3", "/subjects/line/versions/2", "/subjects/part/versions/1"]
    assert found.unusable is None


@pytest.mark.parametrize(
    "references",
    ["?", [7], [{"name": "a", "subject": "b"}], [{"name": "a", "subject": "b", "version": True}],
     [{"name": "a", "subject": "b", "version": 1}]],
)  # fmt: skip
def test_references_that_are_none_or_endless_are_refused(references):
    """The last one: each schema refers to the next version of itself."""

    def answer(_, path, __):
        given = references
        if isinstance(given, list) and isinstance(given[0], dict) and given[0].get("version") == 1:
            version = int(path.rpartition("/")[2]) + 1
            given = [given[0] | {"version": version}]
        return 200, {}, SCHEMA | {"references": given}

    with FakeRegistry(answer) as registry, pytest.raises(SchemaRegistryError) as raised:
        client(registry.url).by_id(3)
    assert "reference" in raised.value.message


@pytest.mark.parametrize(
    "rules",
    [
        {"migrationRules": []},
        {"migrationRules": [{"name": "up", "mode": "UPGRADE"}], "domainRules": None},
        {"domainRules": [{"mode": "READ"}, {"mode": "WRITE", "disabled": True}]},
    ],
)
def test_rules_of_readers_are_no_obstacle(rules):
    more = {"ruleSet": rules, "references": None}
    with FakeRegistry(same(200, SCHEMA | more)) as registry:
        assert client(registry.url).by_id(3).unusable is None


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"basic.auth.user.info": Password("me:it")}, "Basic bWU6aXQ="),
        ({"bearer.auth.token": Password("t0ken")}, "Bearer t0ken"),
    ],
)
def test_credentials_are_sent(options, header):
    with FakeRegistry(same(200, SCHEMA)) as registry:
        client(registry.url, **options).by_id(3)
    assert registry.requests[0][3]["Authorization"] == header


def with_token_of(url):
    return {
        "bearer.auth.issuer.endpoint.url": f"{url}/token",
        "bearer.auth.client.id": "me",
        "bearer.auth.client.secret": Password("it"),
    }


def test_a_bearer_token_comes_from_an_endpoint_once():
    answers = {"POST /api/token": {"access_token": "t0ken"}, "GET /api/schemas/ids/3": SCHEMA}
    with FakeRegistry(lambda method, path, _: (200, {}, answers[f"{method} {path}"])) as registry:
        cluster = {"bearer.auth.logical.cluster": "lsrc-1"}
        asked = client(registry.url, **with_token_of(registry.url), **cluster)
        asked.by_id(3)
        asked.by_id(3)
    paths = [path for _, path, _, _ in registry.requests]
    assert paths == ["/api/token", "/api/schemas/ids/3", "/api/schemas/ids/3"]
    assert registry.requests[1][3]["Authorization"] == "Bearer t0ken"
    assert registry.requests[1][3]["target-sr-cluster"] == "lsrc-1"


def test_a_token_endpoint_that_is_not_trusted_needs_our_truststore():
    with (
        FakeRegistry(same(200, {}), tls=certified()) as endpoint,
        pytest.raises(SchemaRegistryError, match=r"gets no token: .* not trusted") as raised,
    ):
        client("http://127.0.0.1:1", **with_token_of(endpoint.url)).by_id(3)
    assert raised.value.hint == "another CA goes to schema.registry.ssl.truststore.location"


def test_the_time_of_a_token_endpoint_is_that_of_a_request():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        times = {"schema.registry.request.timeout.ms": 100}
        with pytest.raises(NoRegistryAnswerError, match=r"no token .* 100 ms \(schema.registry"):
            client("http://127.0.0.1:1", **times, **with_token_of(url)).by_id(3)


def test_a_secret_that_the_registry_repeats_is_hidden(monkeypatch):
    monkeypatch.setenv("REGISTRY_LOGIN", f"me:{SECRET}")
    options = {"basic.auth.user.info": Password("${env:REGISTRY_LOGIN}")}
    body = {"message": f"wrong password {SECRET}"}
    with (
        FakeRegistry(same(401, body)) as registry,
        pytest.raises(SchemaRegistryError) as raised,
    ):
        client(registry.url, **options).by_id(3)
    assert SECRET not in str(raised.value)


def test_an_address_that_the_operator_does_not_list_is_not_asked(limit):
    with FakeRegistry(same(200, SCHEMA)) as registry:
        limit(URLS, "https://elsewhere")
        with pytest.raises(NotAllowedError):
            client(registry.url)
        limit(URLS, registry.url)
        client(registry.url).by_id(3)


@pytest.mark.parametrize(
    ("options", "url", "says"),
    [
        ({"basic.auth.user.info": Password("a:b")}, "http://r.example", "in the clear"),
        ({"bearer.auth.token": Password("a")}, "https://r,HTTP://r.example", "in the clear"),
        (
            {"bearer.auth.issuer.endpoint.url": "${env:ADDRESS}"},
            "http://r.example/t",
            "in the clear",
        ),
        ({"schema.registry.ssl.truststore.location": "/ca"}, "http://r.example", "no effect"),
    ],
)
def test_an_address_by_reference_gets_no_secret_in_the_clear(monkeypatch, options, url, says):
    """It is not known before it is looked up."""
    monkeypatch.setenv("ADDRESS", url)
    own = "${env:ADDRESS}" if "bearer.auth.issuer.endpoint.url" not in options else "https://r"
    with pytest.raises(ConfigError, match=says):
        client(own, **options)
