"""Amazon MSK's IAM: both messages, and credentials."""

from __future__ import annotations

import base64
import datetime as dt
import json
import sys
import traceback
from contextlib import contextmanager
from urllib.parse import parse_qsl, urlsplit

import botocore.auth
import botocore.session
import pytest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.config.logins.oauth_settings import AwsLogin
from spark_kafka_sink.network.auth.aws_msk_iam import (
    AwsKeys,
    AwsMskIamMechanism,
    Keys,
    keys_fetcher,
    msk_token,
)
from spark_kafka_sink.network.auth.sasl_mechanism import SaslError
from tests.network.fake_registry import FakeRegistry

HOST = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com"
WALL_MS = 1_700_000_000_123
KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "to/ken+with=signs")


@pytest.fixture
def frozen(monkeypatch):
    """botocore signs at one moment."""
    moment = dt.datetime.fromtimestamp(WALL_MS // 1000, dt.UTC)
    monkeypatch.setattr(
        botocore.auth,
        "get_current_datetime",
        lambda remove_tzinfo=True: moment.replace(tzinfo=None) if remove_tzinfo else moment,
    )


def test_the_message_is_that_of_amazons_java_client(frozen):
    mechanism = AwsMskIamMechanism(Keys(KEYS, None), HOST)
    message = json.loads(mechanism.first())
    assert message == {
        "version": "2020_10_22",
        "host": HOST,
        "user-agent": message["user-agent"],
        "action": "kafka-cluster:Connect",
        "x-amz-algorithm": "AWS4-HMAC-SHA256",
        "x-amz-credential": "AKIDEXAMPLE/20231114/eu-west-1/kafka-cluster/aws4_request",
        "x-amz-date": "20231114T221320Z",
        "x-amz-security-token": "to/ken+with=signs",
        "x-amz-signedheaders": "host",
        "x-amz-expires": "900",
        "x-amz-signature": "0fa36129200510f3def6b35aa00578e2bb0ef457858fc1a9be2e8edd57f9987f",
    }
    assert message["user-agent"].startswith("spark-kafka-sink/")
    assert not mechanism.complete
    answer = b'{"version":"2020_10_22","request-id":"x"}'
    assert mechanism.answer(answer) is None
    assert mechanism.complete
    assert set(mechanism.secrets) == {KEYS.secret_key, KEYS.session_token}


@given(st.binary(max_size=50) | st.just(b'{"version":"1999"}') | st.just(b"[" * 50_000))
def test_any_other_answer_is_no_success(answer):
    mechanism = AwsMskIamMechanism(Keys(KEYS, None), HOST)
    with pytest.raises(SaslError, match="not AWS_MSK_IAM's"):
        mechanism.answer(answer)
    assert not mechanism.complete


def test_the_token_is_the_signed_url_in_base64(frozen):
    token = msk_token(Keys(KEYS, None), HOST).value.value
    assert not token.endswith("=")
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.path) == (
        "https", "kafka.eu-west-1.amazonaws.com", "/",
    )  # fmt: skip
    query = dict(parse_qsl(parts.query, strict_parsing=True))
    assert query.pop("User-Agent").startswith("spark-kafka-sink/")
    assert query == {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": "AKIDEXAMPLE/20231114/eu-west-1/kafka-cluster/aws4_request",
        "X-Amz-Date": "20231114T221320Z",
        "X-Amz-Security-Token": "to/ken+with=signs",
        "X-Amz-SignedHeaders": "host",
        "X-Amz-Expires": "900",
        "X-Amz-Signature": "377fdc30ada04d1634ede3aaf6b374260094fdfcbe21860cf36a68706014f400",
    }


@pytest.mark.parametrize(
    ("host", "region"),
    [
        (HOST, "eu-west-1"),
        (HOST.upper(), "eu-west-1"),
        ("boot-x.c1.kafka-serverless.us-east-2.amazonaws.com", "us-east-2"),
        ("b-1.demo.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("10.0.0.1", "ap-south-1"),
        ("kafka.example", "ap-south-1"),
    ],
)
def test_the_region_is_in_the_brokers_name_or_configured(host, region):
    assert Keys(KEYS, "ap-south-1").region_of(host) == region


def test_a_missing_region_is_asked_for():
    with pytest.raises(AuthenticationError, match="region of the broker 10") as raised:
        Keys(KEYS, None).region_of("10.0.0.1")
    assert "AWS_REGION" in raised.value.hint


@pytest.fixture
def no_aws(monkeypatch, tmp_path):
    """An environment that has no credentials, and no way to ask for any."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


def test_credentials_come_from_the_environment_or_a_profile(no_aws, monkeypatch):
    (no_aws / "credentials").write_text("[p]\naws_access_key_id = A\naws_secret_access_key = B\n")
    (no_aws / "config").write_text("[profile p]\nregion = eu-north-1\n")
    found = keys_fetcher(AwsLogin("p"), SystemClock())("h").value
    assert (found.keys, found.region) == (AwsKeys("A", "B"), "eu-north-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "C")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "D")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "E")
    assert keys_fetcher(AwsLogin(), SystemClock())("h").value.keys == AwsKeys("C", "D", "E")


STS = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>R</AccessKeyId><SecretAccessKey>S</SecretAccessKey>
<SessionToken>T</SessionToken><Expiration>{end}</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""


@contextmanager
def sts(status, answer):
    """A server that answers as AWS's STS does; and what it was asked, form by form."""
    asked = []

    def answered(_method, _path, form):
        asked.append(dict(parse_qsl(form.decode())))
        return status, {}, answer.encode()

    with FakeRegistry(answered) as server:
        yield f"http://127.0.0.1:{server.port}", asked


def test_a_role_is_taken_and_kept_until_shortly_before_its_end(no_aws, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "C")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "D")
    end = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    with sts(200, STS.format(end=end.isoformat())) as (url, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        login = AwsLogin(None, "arn:aws:iam::1:role/x", "me", "ext", "eu-west-1")
        found = keys_fetcher(login, SystemClock())("h")
    assert found.value.keys == AwsKeys("R", "S", "T")
    assert found.refresh_after_ms == pytest.approx(3_000_000, abs=60_000)
    assert asked[0]["RoleArn"] == "arn:aws:iam::1:role/x"
    assert (asked[0]["RoleSessionName"], asked[0]["ExternalId"]) == ("me", "ext")


def test_a_refused_role_is_reported_with_awss_code(no_aws, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "C")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "D")
    answer = (
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>s3cr3t</Message></Error>"
        "</ErrorResponse>"
    )
    with sts(403, answer) as (url, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        login = AwsLogin(role_arn="arn:aws:iam::1:role/x", sts_region="eu-west-1")
        with pytest.raises(AuthenticationError, match="AccessDenied") as raised:
            keys_fetcher(login, SystemClock())("h")
    assert "s3cr3t" not in str(raised.value)


def a_session():
    """What a user's own function may give: here botocore's, boto3's looks alike."""
    session = botocore.session.Session()
    session.set_credentials("E", "F", "G")
    session.set_config_variable("region", "sa-east-1")
    return session


def some_credentials():
    return Credentials("H", "I")


#: In place of the function: one that is not made anew.
A_SESSION = a_session()


def test_a_function_of_ones_own_gives_a_session_or_credentials(no_aws):
    found = keys_fetcher(AwsLogin(provider=f"{__name__}:A_SESSION"), SystemClock())("h").value
    assert found.keys == AwsKeys("E", "F", "G")
    found = keys_fetcher(AwsLogin(provider=f"{__name__}:a_session"), SystemClock())("h").value
    assert (found.keys, found.region) == (AwsKeys("E", "F", "G"), "sa-east-1")
    found = keys_fetcher(AwsLogin(provider=f"{__name__}:some_credentials"), SystemClock())("h")
    assert found.value.keys == AwsKeys("H", "I")
    with pytest.raises(ConfigError, match="awsCredentialsProvider"):
        keys_fetcher(AwsLogin(provider="no.such:thing"), SystemClock())


def away():
    raise ConnectionError("https://vault/?key=s3cr3t")


def test_an_error_of_such_a_function_is_reported_by_its_place(no_aws):
    fetch = keys_fetcher(AwsLogin(provider=f"{__name__}:away"), SystemClock())
    with pytest.raises(OSError, match=r"awsCredentialsProvider: ConnectionError in away") as raised:
        fetch("h")
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))
    assert raised.value.__context__ is None


def test_missing_credentials_are_reported(no_aws):
    with pytest.raises(AuthenticationError, match="no AWS credentials were found"):
        keys_fetcher(AwsLogin(), SystemClock())("h")
    with pytest.raises(AuthenticationError, match="ProfileNotFound") as raised:
        keys_fetcher(AwsLogin("nobody"), SystemClock())("h")
    assert "awsProfileName" in raised.value.hint


def test_without_botocore_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(ConfigError, match="botocore") as raised:
        keys_fetcher(AwsLogin(), SystemClock())
    assert "spark-kafka-sink[aws]" in raised.value.hint
