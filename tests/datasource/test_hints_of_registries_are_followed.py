"""The hint of a registry's refusal works when it is followed: by the write, or at the registry."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Final

import pytest
import trustme
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import NoRegistryAnswerError, SchemaRegistryError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.schemas import payload_schemas
from spark_kafka_sink.datasource.schemas.payload_schemas import with_encoders
from spark_kafka_sink.datasource.write.schema import plan_columns
from tests.network.fake_registry import Answer, FakeRegistry

COLUMNS: Final = StructType([StructField("a", StringType())])
AUTHORITY: Final = trustme.CA()
URL: Final = "schema.registry.url"
TIMEOUT: Final = "schema.registry.request.timeout.ms"


def schema(kind: str) -> str:
    fields = [{"name": "a", "type": ["null", kind]}]
    return json.dumps({"type": "record", "name": "orders", "fields": fields})


ORDER: Final = schema("string")
#: Of a registry that has version 1 of the subject, with id 7, and takes another one.
TAKEN: Final[Answer] = (200, {}, {"id": 7, "schema": ORDER, "version": 1})


def https() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    return context


def plan(registry: FakeRegistry, options: Mapping[str, str] = {}, path: str = "/api") -> None:
    """As at the start of a write, which registers its schema unless ``options`` prevent it."""
    payload_schemas._kept.clear()
    given = {
        "kafka.bootstrap.servers": "h:9",
        "topic": "orders",
        "valueColumns": "a",
        "valueFormat": "avro",
        URL: registry.url.removesuffix("/api") + path,
        "auto.register.schemas": "true",
    }
    if registry.tls is not None:
        pem = AUTHORITY.cert_pem.bytes().decode()
        given["schema.registry.ssl.truststore.certificates"] = pem
    config = parse_sink_config(given | options)
    with_encoders(plan_columns(COLUMNS, "orders", config.named_columns), COLUMNS, config)


def hint_of(
    registry: FakeRegistry, status: int, options: Mapping[str, str] = {}, path: str = "/api"
) -> str:
    with pytest.raises(SchemaRegistryError, match=f"answered {status}") as raised:
        plan(registry, options, path)
    return str(raised.value.hint)


def test_the_final_address_of_a_redirect_is_taken() -> None:
    def answer(method: str, path: str, body: object) -> Answer:
        moved: Answer = (301, {"Location": f"/moved{path}"}, {})
        return TAKEN if path.startswith("/moved/") else moved

    with FakeRegistry(answer) as registry:
        told = hint_of(registry, 301)
        assert told == f"redirects are not followed; give the final address in {URL}"
        plan(registry, path="/moved/api")


@pytest.mark.parametrize("option", ["basic.auth.user.info", "bearer.auth.token"])
@pytest.mark.parametrize("before", [{}, {"basic.auth.user.info": "${env:WRONG}"}])
def test_a_login_that_the_registry_knows_opens_it(
    monkeypatch: pytest.MonkeyPatch, option: str, before: Mapping[str, str]
) -> None:
    monkeypatch.setenv("SECRET", "me:it")
    monkeypatch.setenv("WRONG", "me:not it")
    known = {"Basic bWU6aXQ=", "Bearer me:it"}

    def answer(*_: object) -> Answer:
        login = registry.requests[-1][3].get("Authorization")
        return TAKEN if login in known else (401, {}, {})

    with FakeRegistry(answer, tls=https()) as registry:
        told = hint_of(registry, 401, before)
        assert told == "set basic.auth.user.info or bearer.auth.* to a login that the registry has"
        plan(registry, {option: "${env:SECRET}"})


def test_a_right_to_the_subject_lets_the_schema_in() -> None:
    rights: set[str] = set()

    def answer(method: str, path: str, body: object) -> Answer:
        refused = "/subjects/" in path and not any(f"/{one}" in path for one in rights)
        return (403, {}, {"error_code": 40301}) if refused else TAKEN

    with FakeRegistry(answer) as registry:
        assert hint_of(registry, 403) == "the principal needs the right to the subject"
        rights.add("orders-value")
        plan(registry)


def test_the_path_of_a_registry_is_part_of_its_address() -> None:
    def answer(method: str, path: str, body: object) -> Answer:
        return TAKEN if path.startswith("/api/") else (404, {}, {"message": "no such page"})

    with FakeRegistry(answer) as registry:
        assert hint_of(registry, 404, path="") == f"is {URL} right, with its path?"
        plan(registry)


def test_an_id_that_the_registry_has_takes_the_place_of_a_wrong_one() -> None:
    def answer(method: str, path: str, body: object) -> Answer:
        return TAKEN if path.endswith("/7") else (404, {}, {"error_code": 40403})

    number = {"auto.register.schemas": "false", "use.schema.id": "8"}
    with FakeRegistry(answer) as registry:
        told = hint_of(registry, 404, number)
        assert told == "the registry does not have it: is use.schema.id right?"
        plan(registry, number | {"use.schema.id": "7"})


def subject(refusal: Answer, level: list[str]) -> Callable[[str, str, object], Answer]:
    """Takes any schema if ``level`` is empty, and otherwise only :data:`ORDER`."""

    def answer(method: str, path: str, body: object) -> Answer:
        known = not isinstance(body, dict) or json.loads(body["schema"]) == json.loads(ORDER)
        return TAKEN if known or not level else refusal

    return answer


NOT_COMPATIBLE: Final = "change the schema so that it is compatible with the subject's versions"
NOT_USABLE: Final = "change the schema, or register it when the subject is no longer read-only"


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(409, 409, NOT_COMPATIBLE), (422, 42201, NOT_USABLE), (422, 42205, NOT_USABLE)],
    ids=["incompatible", "invalid", "read-only"],
)
@pytest.mark.parametrize("way", ["the schema", "the subject"])
def test_a_changed_schema_or_subject_takes_the_write(
    status: int, code: int, words: str, way: str
) -> None:
    level = ["FULL"]
    refused: Answer = (status, {}, {"error_code": code, "message": "not so"})
    with FakeRegistry(subject(refused, level)) as registry:
        told = hint_of(registry, status, {"valueSchema": schema("bytes")})
        assert told.startswith(words)
        if way == "the schema":
            plan(registry, {"valueSchema": ORDER})
        else:
            level.clear()
            plan(registry, {"valueSchema": schema("string")})


def test_a_registry_that_is_back_takes_the_write() -> None:
    """A refusal that may pass: of a proxy, while the registry starts."""
    down = [True]

    with FakeRegistry(lambda *_: (503, {}, {}) if down else TAKEN) as registry:
        with pytest.raises(NoRegistryAnswerError, match="it answered 503") as raised:
            plan(registry)
        assert str(raised.value.hint).startswith("nothing was written; ")
        down.clear()
        plan(registry)


@pytest.mark.parametrize("limit", [TIMEOUT, "kafka.max.block.ms"])
def test_a_limit_that_is_raised_waits_for_a_slow_registry(limit: str) -> None:
    """It never answers a request of the first write, and one of the second not within the limit of
    the first.
    """
    first, end = [True], threading.Event()

    def answer(*_: object) -> Answer:
        end.wait(None if first else 0.3)
        return TAKEN

    with FakeRegistry(answer) as registry:
        try:
            with pytest.raises(NoRegistryAnswerError, match=r"more than|no time") as raised:
                plan(registry, {limit: "200"})
            assert f"{TIMEOUT} limits a request, kafka.max.block.ms" in str(raised.value.hint)
            first.clear()
            plan(registry, {limit: "60000"})
        finally:
            end.set()
