"""A client for schema registries with Confluent's REST API, such as Confluent's and Apicurio's
registry.

:class:`ConfluentRegistry` sends the requests with their credentials, repeats a request after a
temporary failure, and checks the responses. ``datasource/schemas`` chooses the schema for a write.
A Spark task sends no requests to a registry.
"""

from __future__ import annotations

import http.client
import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from uuid import UUID

from spark_kafka_sink.base.clock import Latch, SystemClock
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    ConfigError,
    NoRegistryAnswerError,
    SchemaRegistryError,
    safe_text,
)
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security.allow_lists import check_url
from spark_kafka_sink.base.security.password import Password, text_of, without_secrets
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.logins.oauth_settings import ClientCredentials
from spark_kafka_sink.config.option import OptionValue
from spark_kafka_sink.config.option_table import (
    ENDPOINT,
    REGISTRY,
    TIMEOUT,
    TOKEN,
    URL,
    USER_INFO,
    renamed_texts,
)
from spark_kafka_sink.config.schema_options import registry_tls, registry_urls
from spark_kafka_sink.network.auth.token_endpoint import request_token
from spark_kafka_sink.network.http.http_exchange import FinalFailureError, HttpRequest, exchange

#: The longest accepted response of the registry, in bytes.
LONGEST_ANSWER: Final = 5 << 20
_TRIES: Final = 3
_PAUSE_MS: Final = 200
#: The names and texts of references, by subject and version.
_Found: TypeAlias = "dict[tuple[str, int], tuple[str, str]]"
#: The most schemas that a schema may refer to, and the greatest depth of references.
_MOST_REFERENCES: Final = 200
_IS_IT_RIGHT: Final = f"is {URL} right?"
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_MOST_SHOWN: Final = 500
_CA: Final = "schema.registry.ssl.truststore.location"
#: The headers that Confluent's cloud needs in addition to a token, by option.
_WITH_TOKEN: Final = {
    "bearer.auth.logical.cluster": "target-sr-cluster",
    "bearer.auth.identity.pool.id": "Confluent-Identity-Pool-Id",
}
_MISSING: Final = "the registry does not have it: is use.schema.id right?"
_ADVICE: Final = {
    300: f"redirects are not followed; give the final address in {URL}",
    401: f"set {USER_INFO} or bearer.auth.* to a login that the registry has",
    403: "the principal needs the right to the subject",
    404: f"is {URL} right, with its path?",
    409: "change the schema so that it is compatible with the subject's versions, or the"
    " compatibility level of the subject",
    422: "change the schema, or register it when the subject is no longer read-only",
}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of a registry."""

    id: int
    type: str
    text: str
    #: The reason why rows can't be written with the schema, or None.
    unusable: str | None
    #: None if the registry has no GUIDs.
    guid: UUID | None = None
    #: The schemas that this schema needs, directly or through other schemas, as pairs of the
    #: reference's name and the schema's text. A schema comes after the schemas that it needs.
    references: tuple[tuple[str, str], ...] = ()


# Confluent's own client (confluent-kafka 2.16) is not used, for two reasons. It reads responses of
# any length, without a time limit. And it does not support the key stores and the references to
# secrets that are supported for brokers.
class ConfluentRegistry:
    """A client of the registry whose URL and credentials are in ``options``. The client resolves
    references to secrets in ``options``.

    Requests block. All requests of this object together may take at most ``limit_ms``, counted from
    its creation. A request raises these errors:

    * NoRegistryAnswerError: no URL of the registry responds.
    * SchemaRegistryError: the response is invalid or unexpected.
    * ConfigError: certificates or keys can't be used.
    """

    def __init__(self, options: Mapping[str, OptionValue], limit_ms: int) -> None:
        values = resolve(options)
        self._clock = SystemClock()
        self._deadline_ms = self._clock.now_ms() + limit_ms
        self._timeout_ms = int(text_of(options[TIMEOUT]))
        self._urls = registry_urls(values)
        #: The URLs of the registry. They identify the source of a response, and no message contains
        #: them.
        self.addresses = tuple(sorted(self._urls))
        self._shown = safe_text(f"{values[URL]}")
        for url in self._urls:
            check_url(url, f"{URL}={self}")
        self._tls = registry_tls(values)
        self._values = values
        self._secrets = [one.value for one in values.values() if isinstance(one, Password)]
        self._secrets += text_of(values.get(USER_INFO)).split(":", 1)
        self._token = Password(self._text(TOKEN)) if TOKEN in values else None
        self._normalize = "?normalize=true" if values["normalize.schemas"] else ""

    def __str__(self) -> str:
        return self._shown

    def by_id(self, schema_id: int) -> RegisteredSchema:
        """Requests the schema with the id ``schema_id``."""
        return self._schema(self._request(f"/schemas/ids/{schema_id}"), schema_id)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Requests the newest version of the schema of ``subject``. Returns None if the subject
        does not exist.
        """
        answer = self._request(f"{_subject(subject)}/versions/latest", may_miss=True)
        return None if answer is None else self._schema(answer, self._id(answer))

    def id_of(self, subject: str, text: str, kind: str, *, register: bool) -> int | None:
        """Requests the id that a schema has in ``subject``.

        * ``text``: the schema.
        * ``kind``: the registry's name of the schema's format: AVRO, PROTOBUF or JSON.
        * ``register``: the action if the subject does not have the schema. If true, the schema is
          registered as a new version of the subject. If false, the result is None.
        """
        path = f"{_subject(subject)}{'/versions' if register else ''}{self._normalize}"
        fields = {"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind})
        answer = self._request(path, json.dumps(fields).encode(), may_miss=not register)
        return None if answer is None else self._id(answer)

    def _schema(self, answer: Mapping[str, Any] | None, schema_id: int) -> RegisteredSchema:
        assert answer is not None
        text, kind = answer.get("schema"), answer.get("schemaType") or "AVRO"
        if not isinstance(text, str) or not isinstance(kind, str):
            raise self._error("answered without a schema", f"is {URL} right, with its path?")
        unusable = None
        if _has_rules_of_writes(answer.get("ruleSet") or {}):
            unusable = (
                "has rules (a ruleSet, for example to encrypt fields), which are not applied here, "
                "so rows would be written unencrypted or unchecked"
            )
        found: _Found = {}
        self._add_references(answer, found)
        guid = _guid(answer.get("guid"))
        return RegisteredSchema(schema_id, kind, text, unusable, guid, tuple(found.values()))

    def _add_references(self, answer: Mapping[str, Any], found: _Found, depth: int = 0) -> None:
        """Requests the schemas to which the response ``answer`` refers, and adds them to ``found``.
        Each schema is added once. A schema is added after the schemas to which it refers.

        There are no cycles, because a registry accepts a schema only after its references.
        """
        given = answer.get("references") or []
        if not isinstance(given, list) or depth > _MOST_REFERENCES:
            raise self._error("answered with references that are no list, or endless", _IS_IT_RIGHT)
        for one in given:
            name, subject, version = _reference(one)
            if name is None:
                raise self._error("answered with a reference that names no schema", _IS_IT_RIGHT)
            if (subject, version) in found:
                continue
            path = f"{_subject(subject)}/versions/{version}"
            inner = self._request(path) or {}
            self._add_references(inner, found, depth + 1)
            if not isinstance(inner.get("schema"), str) or len(found) >= _MOST_REFERENCES:
                what = f"has no schema of {safe_text(subject)}, or too many references"
                raise self._error(what, _IS_IT_RIGHT)
            found[subject, version] = (name, inner["schema"])

    def _id(self, answer: Mapping[str, Any] | None) -> int:
        found = None if answer is None else answer.get("id")
        if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 1 << 31:
            raise self._error("answered without the id of a schema", f"is {URL} right?")
        return found

    def _request(
        self, path: str, body: bytes | None = None, *, may_miss: bool = False
    ) -> Mapping[str, Any] | None:
        """Sends a request to the registry, and returns the response. With ``may_miss``, returns
        None if the requested subject, version or schema does not exist.

        After a temporary failure, waits and sends the request to the next URL of the registry. A
        registry with one URL gets at most three requests.
        """
        what = f"{'GET' if body is None else 'POST'} {safe_text(path, 300)}"
        problem = "no time is left"
        for attempt in range(max(_TRIES, len(self._urls))):
            if attempt:
                pause_ms = self._clock.now_ms() + (_PAUSE_MS << attempt - 1)
                self._clock.wait(Latch(), min(pause_ms, self._deadline_ms))
            left_ms = self._deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                break
            url, timeout_ms = self._urls[attempt % len(self._urls)], min(self._timeout_ms, left_ms)
            try:
                return self._answer(url + path, body, timeout_ms, what, may_miss=may_miss)
            except OSError as error:
                problem = str(error)
        raise NoRegistryAnswerError(
            f"the schema registry at {self} did not answer {what}: {problem}",
            hint=f"nothing was written; {TIMEOUT} limits a request, kafka.max.block.ms (or "
            "--timeout of kprod check) all of them",
        )

    def _answer(
        self, url: str, body: bytes | None, timeout_ms: int, what: str, *, may_miss: bool
    ) -> Mapping[str, Any] | None:
        """Sends a request to one URL of the registry, and returns the response. With ``may_miss``,
        returns None if the requested subject, version or schema does not exist. Raises OSError for
        a temporary failure, and SchemaRegistryError for any other failure.
        """
        headers = {"Accept": f"{_MEDIA_TYPE}, application/json", **self._login(timeout_ms)}
        method = "GET"
        if body is not None:
            method, headers["Content-Type"] = "POST", _MEDIA_TYPE
        request = HttpRequest(
            method=method,
            url=url,
            headers=headers,
            body=body,
            tls=self._tls,
            connect_timeout_ms=timeout_ms,
            read_timeout_ms=timeout_ms,
            most_bytes=LONGEST_ANSWER,
            truststore=_CA,
        )
        try:
            status, answer = exchange(request)
        except ConfigError as error:
            raise _as_written(error) from None
        except FinalFailureError as error:
            raise self._error(f"{self._safe(error.message)} (to {what})", error.hint) from None
        except TimeoutError:
            by = f" ({TIMEOUT})" if timeout_ms == self._timeout_ms else ""
            raise OSError(f"it took more than {timeout_ms} ms{by}") from None
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise OSError(f"it can't be reached ({self._safe(str(reason))})") from None
        fields = json_object(answer)
        if 200 <= status < 300 and fields is not None:
            return fields
        known = fields or {}
        missing = status == 404 and "error_code" in known
        if missing and may_miss:
            return None
        said = self._safe(str(known.get("message") or ""))
        shown = f"answered {status}: {said}" if said else f"answered {status}"
        if status in _PASSING:
            raise OSError(f"it {shown}")
        advice = _MISSING if missing else _ADVICE.get(300 if status // 100 == 3 else status)
        raise self._error(f"{shown} (to {what})", advice or f"is {URL} right?")

    def _login(self, timeout_ms: int) -> dict[str, str]:
        """The HTTP headers that authenticate the client."""
        if USER_INFO in self._values:
            return {"Authorization": f"Basic {b64encode(self._text(USER_INFO).encode()).decode()}"}
        if self._token is None and ENDPOINT in self._values:
            self._token = self._fetched_token(timeout_ms)
        if self._token is None:
            return {}
        more = {name: said for it, name in _WITH_TOKEN.items() if (said := self._text(it))}
        return {"Authorization": f"Bearer {self._token.value}", **more}

    def _text(self, option: str) -> str:
        return text_of(self._values.get(option))

    def _fetched_token(self, timeout_ms: int) -> Password:
        url: Any = self._values[ENDPOINT]  # text, or what a reference led to
        check_url(text_of(url), f"{ENDPOINT}={safe_text(f'{url}')}")
        client = ClientCredentials(
            url,
            self._text("bearer.auth.client.id"),
            Password(self._text("bearer.auth.client.secret")),
            timeout_ms,
            timeout_ms,
            scope=self._text("bearer.auth.scope") or None,
            tls=tuple(self._tls.items()),
        )
        try:
            token = request_token(client, _CA).token
        except ConfigError as error:
            raise _as_written(error) from None
        except AuthenticationError as error:
            what = error.message.partition(": ")[2]
            raise self._error(f"gets no token: {self._safe(what)}", error.hint) from None
        except TimeoutError:
            said = f"there is no token for it within {timeout_ms} ms ({TIMEOUT})"
            raise OSError(said) from None
        except OSError as error:
            raise OSError(f"there is no token for it: {self._safe(str(error))}") from None
        self._secrets.append(token.value)
        return token

    def _safe(self, text: str) -> str:
        return safe_text(without_secrets(text, self._secrets), _MOST_SHOWN)

    def _error(self, what: str, hint: str | None) -> SchemaRegistryError:
        return SchemaRegistryError(f"the schema registry at {self} {what}", hint=hint)


def _as_written(error: ConfigError) -> ConfigError:
    """Returns a copy of ``error`` that names options as the user wrote them. For example, the copy
    has ``schema.registry.ssl.truststore.location`` instead of ``ssl.truststore.location``, the name
    of the brokers' option. The code that reads certificates knows only the names of the brokers'
    options.
    """

    def name_of(name: str) -> str:
        return f"{REGISTRY}{name}" if name.startswith("ssl.") else name

    message, hint = renamed_texts(error, name_of)
    return type(error)(message, hint=hint, kind=error.kind)


def _subject(name: str) -> str:
    # JSON may hold half a surrogate pair, in a title that is part of the name.
    return f"/subjects/{quote(name, safe='', errors='replace')}"


def _reference(given: object) -> tuple[str | None, str, int]:
    """The name, subject and version of a reference in a registry's response. If one of the three is
    missing, the returned name is None.
    """
    fields = given if isinstance(given, dict) else {}
    name, subject, version = (fields.get(one) for one in ("name", "subject", "version"))
    if isinstance(name, str) and isinstance(subject, str) and type(version) is int:
        return name, subject, version
    return None, "", 0


#: Modes of a rule that a write has nothing to do with.
_OF_READERS: Final = frozenset({"READ", "UPGRADE", "DOWNGRADE", "UPDOWN"})


def _has_rules_of_writes(rules: object) -> bool:
    """True if the rule set of a schema has rules that a writer must apply. Migration rules are only
    for readers.
    """
    if not isinstance(rules, dict):
        return True
    for kind, given in rules.items():
        if kind == "migrationRules" or not given:
            continue
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            return True
        if any(o.get("mode") not in _OF_READERS and o.get("disabled") is not True for o in given):
            return True
    return False


def _guid(given: object) -> UUID | None:
    try:
        return UUID(str(given))
    except ValueError:
        return None
