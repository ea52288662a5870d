"""Amazon MSK's IAM authentication: the mechanism AWS_MSK_IAM, and its form as a token.

Owns: both messages, the region of a broker, and fetching credentials through botocore (the extra
``aws``), which blocks. Never: the signature's arithmetic (``aws_signature.py``).
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from collections.abc import Callable
from typing import Any, Final

from spark_kafka_sink import __version__
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import AuthenticationError, ConfigError, ErrorCode
from spark_kafka_sink.network.aws_signature import AwsKeys, encoded_query, signed_query
from spark_kafka_sink.network.login import Fetched
from spark_kafka_sink.network.oauth_token import Token
from spark_kafka_sink.network.sasl_mechanism import SaslError
from spark_kafka_sink.oauth_settings import AwsLogin
from spark_kafka_sink.secrets import Password

_VERSION: Final = "2020_10_22"
_USER_AGENT: Final = f"spark-kafka-sink/{__version__}"
_HINT: Final = (
    "does the principal have kafka-cluster:Connect on this cluster, is it the right region, and "
    "is this machine's clock right?"
)
#: Brokers of MSK: b-1.name.abc123.c2.kafka.eu-west-1.amazonaws.com (and .amazonaws.com.cn).
_HOST: Final = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?")
#: Keys are asked for again so often: botocore renews its own before they end.
_REFRESH_MS: Final = 300_000
_ROLE_SESSION: Final = "spark-kafka-sink"


class Keys:
    """Credentials, and the region to sign for where a broker's name does not tell."""

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
                hint="set AWS_REGION, or region in the profile; names of MSK's brokers tell theirs",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            )
        return region


class AwsMskIamMechanism:
    """One message, a signed request as JSON; the broker's answer has an id of its request."""

    __slots__ = ("_host", "_keys", "_wall_ms", "complete")

    name = "AWS_MSK_IAM"
    hint = _HINT

    def __init__(self, keys: Keys, host: str, wall_ms: int) -> None:
        self._keys = keys
        self._host = host
        self._wall_ms = wall_ms
        self.complete = False

    @property
    def secrets(self) -> tuple[str, ...]:
        keys = self._keys.keys
        return (keys.secret_key, keys.session_token or "")

    def first(self) -> bytes:
        region = self._keys.region_of(self._host)
        parameters = signed_query(self._keys.keys, region, self._host, self._wall_ms)
        message = {name.lower(): value for name, value in parameters.items()}
        message |= {"version": _VERSION, "host": self._host, "user-agent": _USER_AGENT}
        return json.dumps(message, separators=(",", ":")).encode()

    def answer(self, challenge: bytes) -> None:
        try:
            response = json.loads(challenge)
        except (ValueError, RecursionError):
            response = None
        if not isinstance(response, dict) or response.get("version") != _VERSION:
            raise SaslError(f"its answer is not AWS_MSK_IAM's of version {_VERSION}")
        self.complete = True


def msk_token(keys: Keys, host: str, wall_ms: int) -> Token:
    """The same as a token for OAUTHBEARER: the signed URL of AWS's endpoint for the region."""
    region = keys.region_of(host)
    endpoint = f"kafka.{region}.amazonaws.com"
    parameters = signed_query(keys.keys, region, endpoint, wall_ms)
    query = encoded_query({n: v for n, v in parameters.items() if n != "X-Amz-Signature"})
    url = (
        f"https://{endpoint}/?{query}&X-Amz-Signature={parameters['X-Amz-Signature']}"
        f"&{encoded_query({'User-Agent': _USER_AGENT})}"
    )
    return Token(Password(base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")))


def keys_fetcher(login: AwsLogin, clock: Clock) -> Callable[[str], Fetched[Keys]]:
    """What fetches AWS's credentials. ConfigError when botocore is not there."""
    del clock
    session_module = _botocore("botocore.session")

    def fetch(host: str) -> Fetched[Keys]:
        del host
        session: Any = session_module.Session(profile=login.profile)
        region = session.get_config_variable("region")
        if login.role_arn:
            return Fetched(Keys(_assume(session, login), region), _REFRESH_MS)
        credentials = session.get_credentials()
        if credentials is None:
            raise AuthenticationError(
                "no AWS credentials were found",
                hint="an instance profile, a role of the pod, environment variables or a profile;"
                " on the driver and on every executor",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            )
        frozen = credentials.get_frozen_credentials()
        keys = AwsKeys(frozen.access_key, frozen.secret_key, frozen.token)
        return Fetched(Keys(keys, region), _REFRESH_MS)

    return _naming_failures(fetch)


def _naming_failures(fetch: Callable[[str], Fetched[Keys]]) -> Callable[[str], Fetched[Keys]]:
    """The errors of botocore, by name; what can pass by itself may be tried again."""
    errors = _botocore("botocore.exceptions")

    def named(host: str) -> Fetched[Keys]:
        try:
            return fetch(host)
        except (errors.HTTPClientError, errors.CredentialRetrievalError) as error:
            raise OSError(f"AWS credentials: {type(error).__name__}") from None
        except (errors.BotoCoreError, errors.ClientError) as error:
            # Its text may hold what was asked with.
            response = getattr(error, "response", None) or {}
            code = str(response.get("Error", {}).get("Code", type(error).__name__))
            raise AuthenticationError(
                f"AWS gives no credentials: {code}",
                hint="see awsProfileName and awsRoleArn in sasl.jaas.config",
                code=ErrorCode.SASL_AUTHENTICATION_FAILED,
            ) from None

    return named


def _assume(session: Any, login: AwsLogin) -> AwsKeys:  # noqa: ANN401 - botocore has no types
    client = session.create_client("sts", region_name=login.sts_region)
    request = {
        "RoleArn": login.role_arn,
        "RoleSessionName": login.role_session_name or _ROLE_SESSION,
    }
    if login.role_external_id:
        request["ExternalId"] = login.role_external_id
    found = client.assume_role(**request)["Credentials"]
    return AwsKeys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])


def _botocore(name: str) -> Any:  # noqa: ANN401 - botocore has no types
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigError(
            "AWS credentials need the package botocore",
            hint="pip install 'spark-kafka-sink[aws]' on the driver and on every executor",
        ) from None
