"""IAM authentication of Amazon MSK: the mechanism AWS_MSK_IAM, and OAuth tokens that contain the
signature of that mechanism.

This module creates the messages of the mechanism, finds the AWS region of a broker, and fetches AWS
credentials. A fetch may block.

The package botocore (the extra ``aws``) fetches the credentials, and signs an HTTP request with
them. This request is only sent to the broker, as the proof of the credentials. It is not sent to
AWS.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError, ErrorCode, safe_text
from spark_kafka_sink.base.json_object import json_object
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.base.security.password import Password, text_of
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.config.logins.oauth_settings import AwsLogin
from spark_kafka_sink.network.auth.login import FetchedCredential
from spark_kafka_sink.network.auth.oauth_token import Token
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError, SaslMechanism

_SERVICE: Final = "kafka-cluster"
_ACTION: Final = "kafka-cluster:Connect"
#: Lifetime of a signature, in seconds; a broker's session expires with it.
_EXPIRES_S: Final = 900
_VERSION: Final = "2020_10_22"
_USER_AGENT: Final = f"spark-kafka-sink/{__version__}"
HINT: Final = (
    "does the principal have kafka-cluster:Connect on this cluster, is it the right region, and "
    "is this machine's clock right?"
)
#: Brokers of MSK: b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com (and .amazonaws.com.cn).
_HOST: Final = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?")
#: The interval in ms at which credentials are fetched again. botocore itself renews its credentials
#: before they expire.
_REFRESH_MS: Final = 300_000
#: A role is assumed again this long before its credentials expire.
_ROLE_MARGIN_MS: Final = 600_000
_ROLE_SESSION: Final = "spark-kafka-sink"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """AWS credentials. ``session_token`` is None for the permanent keys of an IAM user."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


class Keys:
    """AWS credentials with the default region. The default region is used for a broker whose name
    does not contain a region.
    """

    __slots__ = ("keys", "region")

    def __init__(self, keys: AwsKeys, region: str | None) -> None:
        self.keys = keys
        self.region = region

    def region_of(self, host: str) -> str:
        found = _HOST.fullmatch(host.lower())
        region = found[1] if found is not None else self.region
        if not region:
            raise AuthenticationError(
                f"the AWS region of the broker {host} is not known",
                hint="set AWS_REGION, or region in the profile; names of MSK's brokers contain it",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            )
        return region


class AwsMskIamMechanism(SaslMechanism):
    """The mechanism AWS_MSK_IAM. The client sends one message, a signed request as JSON. The broker
    responds with JSON that has a request id.
    """

    __slots__ = ("_host", "_keys", "complete")

    name = "AWS_MSK_IAM"
    hint = HINT

    def __init__(self, keys: Keys, host: str) -> None:
        self._keys = keys
        self._host = host
        self.complete = False

    @property
    def secrets(self) -> tuple[str, ...]:
        keys = self._keys.keys
        return (keys.secret_key, keys.session_token or "")

    def first(self) -> bytes:
        region = self._keys.region_of(self._host)
        query = urlsplit(signed_url(self._keys.keys, region, self._host)).query
        message = {name.lower(): value for name, value in parse_qsl(query)}
        message |= {"version": _VERSION, "host": self._host, "user-agent": _USER_AGENT}
        return json.dumps(message, separators=(",", ":")).encode()

    def answer(self, challenge: bytes) -> None:
        if (json_object(challenge) or {}).get("version") != _VERSION:
            raise SaslError(f"its answer is not AWS_MSK_IAM's of version {_VERSION}")
        self.complete = True


def signed_url(keys: AwsKeys, region: str, host: str) -> str:
    """Returns the URL ``https://<host>/?Action=kafka-cluster:Connect&...``. Its query has a
    signature that is valid for 15 minutes from now on (AWS Signature Version 4).
    """
    auth, credentials = _botocore("botocore.auth"), _botocore("botocore.credentials")
    request = _botocore("botocore.awsrequest").AWSRequest(
        "GET", f"https://{host}/", params={"Action": _ACTION}
    )
    owner = credentials.Credentials(keys.access_key, keys.secret_key, keys.session_token)
    auth.SigV4QueryAuth(owner, _SERVICE, region, expires=_EXPIRES_S).add_auth(request)
    url: str = request.url
    return url


def msk_token(keys: Keys, host: str) -> Token:
    """Creates a token for the mechanism OAUTHBEARER: a signed URL of Amazon MSK's endpoint in the
    broker's region.
    """
    region = keys.region_of(host)
    url = signed_url(keys.keys, region, f"kafka.{region}.amazonaws.com")
    url += f"&User-Agent={quote(_USER_AGENT, safe='')}"
    return Token(Password(base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")))


def keys_fetcher(login: AwsLogin, clock: Clock) -> Callable[[str], FetchedCredential[Keys]]:
    """Returns a function that fetches AWS credentials. Its argument, the broker's host, is not
    used.

    Raises ConfigError if a required package, such as botocore, is not installed. The returned
    function may block. It raises OSError if a retry may succeed, and AuthenticationError otherwise.
    """
    errors = _botocore("botocore.exceptions")
    source = _Source(login)

    def fetch(host: str) -> FetchedCredential[Keys]:
        del host
        try:
            return source.keys(clock.wall_ms())
        except (errors.HTTPClientError, errors.CredentialRetrievalError) as error:
            raise OSError(f"AWS credentials: {type(error).__name__}") from None
        except (errors.BotoCoreError, errors.ClientError) as error:
            # By name only: its text may hold the request's parameters.
            response = getattr(error, "response", None) or {}
            code = str(response.get("Error", {}).get("Code", type(error).__name__))
            raise AuthenticationError(
                f"AWS gives no credentials: {safe_text(code)}",
                hint="see awsProfileName, awsRoleArn and awsStsRegion in kafka.sasl.jaas.config",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from None

    return fetch


class _Source:
    """Reads AWS credentials from a botocore session, or from the user's ``awsCredentialsProvider``.

    botocore itself renews credentials before they expire. Only the thread on which a login fetches
    credentials calls :meth:`keys`.
    """

    def __init__(self, login: AwsLogin) -> None:
        self._login = login
        self._module = _botocore("botocore.session")
        _botocore("botocore.auth")  # here, where it may take its time
        self._provider: Any = None
        if login.provider is not None:
            self._provider = import_paths.make(login.provider, "awsCredentialsProvider")
        self._session: Any = None

    def keys(self, wall_ms: int) -> FetchedCredential[Keys]:
        session = self._session = self._session or self._new_session()
        if self._login.role_arn:
            return _assume(session, self._login, wall_ms)
        find = getattr(session, "get_credentials", None)
        credentials = session if find is None else find()
        if credentials is None:
            self._session = None  # it may look elsewhere next time
            raise AuthenticationError(
                "no AWS credentials were found",
                hint="an instance profile, a role of the pod, environment variables or a profile;"
                " on the driver and on every executor",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            )
        freeze = getattr(credentials, "get_frozen_credentials", None)
        frozen = credentials if freeze is None else freeze()
        keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)
        return FetchedCredential(Keys(keys, _region(session)), _REFRESH_MS)

    def _new_session(self) -> Any:  # noqa: ANN401 - botocore has no types
        if self._provider is None:
            return self._module.Session(profile=text_of(self._login.profile) or None)
        if not callable(self._provider):
            return self._provider
        try:
            return self._provider()
        except OSError as error:
            where = import_paths.place_of(error)
        # It may pass, and is tried again. By name only: its text may hold anything; raised in the
        # handler, this would keep it in __context__.
        raise OSError(f"awsCredentialsProvider: {where}")


def _region(session: Any) -> str | None:  # noqa: ANN401 - botocore and boto3 have no types
    ask = getattr(session, "get_config_variable", None)
    found = getattr(session, "region_name", None) if ask is None else ask("region")
    return found if isinstance(found, str) else os.environ.get("AWS_REGION")


def _assume(session: Any, login: AwsLogin, wall_ms: int) -> FetchedCredential[Keys]:  # noqa: ANN401 - untyped
    make = getattr(session, "create_client", None) or session.client
    request = {
        "RoleArn": text_of(login.role_arn),
        "RoleSessionName": text_of(login.role_session_name) or _ROLE_SESSION,
    }
    if login.role_external_id:
        request["ExternalId"] = text_of(login.role_external_id)
    found = make("sts", region_name=text_of(login.sts_region) or None).assume_role(**request)[
        "Credentials"
    ]
    keys = AwsKeys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
    life = int(found["Expiration"].timestamp() * 1000) - wall_ms
    return FetchedCredential(
        Keys(keys, _region(session)), max(life - _ROLE_MARGIN_MS, life // 2), life
    )


def _botocore(name: str) -> Any:  # noqa: ANN401 - botocore has no types
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            "AWS credentials need the package botocore",
            hint="pip install 'spark-kafka-sink[aws]' on the driver and on every executor",
            kind=Kind.MISSING_PACKAGE,
        ) from None
