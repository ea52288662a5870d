"""What the options of SASL mean together, reported on the driver: contradictions, gaps, Java."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.oauth_settings import (
    AwsLogin,
    ClientCredentials,
    StaticToken,
    TokenFile,
    TokenProvider,
    UnsecuredToken,
)
from spark_kafka_sink.config.logins.sasl_settings import (
    KerberosSettings,
    UserAndPassword,
    sasl_settings,
)
from spark_kafka_sink.config.parsing import parse_sink_config
from tests.sasl.identity_provider import RULE

SECRET = "tr0mb0ne"
URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"
HANDLER = "sasl.login.callback.handler.class"
PACKAGE = "org.apache.kafka.common.security"
OAUTH_MODULE = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required"
IAM = "software.amazon.msk.auth.iam"


def settings(mechanism=None, jaas=None, **options):
    given = {name.replace("__", "."): value for name, value in options.items()}
    if mechanism is not None:
        given["sasl.mechanism"] = mechanism
    if jaas is not None:
        given["sasl.jaas.config"] = Password(jaas)
    return sasl_settings(given)


def oauth(jaas=None, options=None):
    given = {"sasl.mechanism": "OAUTHBEARER"} | (options or {})
    if jaas is not None:
        given["sasl.jaas.config"] = Password(f"{OAUTH_MODULE} {jaas};")
    return sasl_settings(given).login


@pytest.mark.parametrize("shaded", ["", "kafkashaded."])
@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.Plain"), ("scram-sha-256", "scram.Scram"), ("SCRAM-SHA-512", "scram.Scram")],
)
def test_a_block_of_java_is_read(mechanism, module, shaded):
    jaas = f'{shaded}{PACKAGE}.{module}LoginModule required username="u" password="{SECRET}";'
    found = settings(mechanism, jaas)
    assert found.mechanism == mechanism.upper()
    assert found.login == UserAndPassword("u", Password(SECRET))
    assert SECRET not in repr(found)


def test_the_short_form_says_the_same():
    user = {"sasl__username": Password("u"), "sasl__password": Password(SECRET)}
    jaas = f'PlainLoginModule required username="u" password="{SECRET}";'
    assert settings("PLAIN", **user) == settings("PLAIN", jaas)


def test_iam_takes_its_options_or_none():
    assert settings("AWS_MSK_IAM").login == AwsLogin()
    assert settings("AWS_MSK_IAM", f"{IAM}.IAMLoginModule required;").login == AwsLogin()
    jaas = (
        f'{IAM}.IAMLoginModule required awsProfileName="p" awsRoleArn="arn:x"'
        ' awsRoleSessionName="s" awsRoleExternalId="e" awsStsRegion="eu-west-1";'
    )
    handler = {"sasl__client__callback__handler__class": f"{IAM}.IAMClientCallbackHandler"}
    found = settings("AWS_MSK_IAM", jaas, **handler).login
    assert found == AwsLogin("p", "arn:x", "s", Password("e"), "eu-west-1")
    jaas = f'{IAM}.IAMLoginModule required awsCredentialsProvider="my.module:session";'
    assert settings("AWS_MSK_IAM", jaas).login == AwsLogin(provider="my.module:session")
    with pytest.raises(ConfigError, match="awsCredentialsProvider and awsProfileName"):
        settings("AWS_MSK_IAM", jaas.replace(";", ' awsProfileName="p";'))


def test_kerberos_takes_its_service_from_either_place():
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        ' keyTab="/etc/k.keytab" principal="me@EXAMPLE" serviceName="kafka";'
    )
    expected = KerberosSettings("kafka", "/etc/k.keytab", "me@EXAMPLE")
    assert settings("GSSAPI", jaas).login == expected
    assert settings(None, jaas).mechanism == "GSSAPI"
    found = settings("GSSAPI", sasl__kerberos__service__name="kafka").login
    assert found == KerberosSettings("kafka")
    with pytest.raises(ConfigError, match="Conflicting serviceName values"):
        settings("GSSAPI", jaas, sasl__kerberos__service__name="other")
    with pytest.raises(ConfigError, match="No serviceName defined"):
        settings("GSSAPI")


PLAIN_JAAS = f'PlainLoginModule required username="u" password="{SECRET}";'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"jaas": PLAIN_JAAS}, ("sasl.mechanism is not set", "set it to PLAIN")),
        ({"mechanism": "PLAIN"}, ("sasl.username and sasl.password", "both are missing")),
        (
            {"mechanism": "PLAIN", "jaas": 'PlainLoginModule required username="u";'},
            ("PlainLoginModule needs", "the password is missing"),
        ),
        ({"mechanism": "PLAIN", "sasl__username": "u\0", "sasl__password": SECRET}, ("NUL",)),
        ({"mechanism": "PLAIN", "sasl__username": "u\ud800", "sasl__password": SECRET}, ("half",)),
        (
            {
                "mechanism": "AWS_MSK_IAM",
                "jaas": f'IAMLoginModule required awsRoleSecretAccessKey="{SECRET}";',
            },
            ("not supported", "awsProfileName"),
        ),
    ],
)
def test_a_contradiction_or_a_gap_is_named(arguments, words):
    """Those that have words of their own; the others: ``bad_input/wrong_configurations.jsonl``."""
    with pytest.raises(ConfigError) as raised:
        settings(**arguments)
    for word in words:
        assert word in str(raised.value)
    assert SECRET not in str(raised.value)


def test_client_credentials_come_from_options_or_login_module():
    url = "https://idp.example/token"
    by_options = oauth(
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1"',
        {URL: url, ID: "me", CLIENT_SECRET: Password(SECRET), "sasl.oauthbearer.scope": "kafka"},
    )
    by_module = oauth(
        f'clientId="me" clientSecret="{SECRET}" scope="kafka" extension_identityPoolId="pool-1"'
        ' extension_logicalCluster="lkc-1"',
        {URL: url, HANDLER: f"{PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler"},
    )
    assert by_options == by_module
    source = by_options.source
    assert isinstance(source, ClientCredentials)
    assert (source.url, source.client_id, source.scope) == (url, "me", "kafka")
    assert source.client_secret == Password(SECRET)
    assert by_options.extensions == (("identityPoolId", "pool-1"), ("logicalCluster", "lkc-1"))
    assert by_options.refresh == RULE
    assert SECRET not in repr(by_options)


def test_strimzis_names_are_understood():
    found = oauth(
        'oauth.token.endpoint.uri="https://idp/t" oauth.client.id="me"'
        f' oauth.client.secret="{SECRET}" oauth.scope="s" oauth.audience="a"'
        ' oauth.ssl.truststore.location="/ca.pem"',
        {HANDLER: "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler"},
    ).source
    assert isinstance(found, ClientCredentials)
    assert (found.client_id, found.scope, found.audience) == ("me", "s", "a")
    assert found.tls == (("ssl.truststore.location", "/ca.pem"),)


def test_each_other_source_has_its_option():
    assert oauth('oauth.access.token="abc"').source == StaticToken(Password("abc"))
    found = oauth(None, {"sasl.password": Password("abc")}).source
    assert found == StaticToken(Password("abc"))
    assert oauth(None, {URL: "file:///run/token"}).source == TokenFile("/run/token")
    found = oauth('a="b"', {HANDLER: "my.module:Provider"}).source
    assert found == TokenProvider("my.module:Provider", HANDLER, (("a", Password("b")),))
    found = oauth(None, {"sasl.oauthbearer.jwt.retriever.class": "my.module.Provider"}).source
    assert isinstance(found, TokenProvider)
    aws = oauth('awsProfileName="p"', {HANDLER: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"})
    assert aws.source == AwsLogin("p")
    unsecured = oauth(
        'unsecuredLoginStringClaim_sub="alice" unsecuredLoginNumberClaim_level="3"'
        ' unsecuredLoginListClaim_scope="|a|b" unsecuredLoginLifetimeSeconds="60"'
        ' unsecuredLoginExtension_x="y"'
    )
    claims = (("level", 3.0), ("scope", ("a", "b")), ("sub", "alice"))
    assert unsecured.source == UnsecuredToken(claims, 60)
    assert unsecured.extensions == (("x", "y"),)


GOOD = {ID: "me", CLIENT_SECRET: SECRET}


@pytest.mark.parametrize(
    ("jaas", "options", "words"),
    [
        (None, {}, ("no option names the source of its token", URL, HANDLER)),
        (None, {URL: "http://127.0.0.1.example/t"} | GOOD, ("http", "client's secret")),
        (None, {URL: "ftp://idp/t"} | GOOD, ("not a URL of https",)),
        (None, {URL: "https://[::1/t"} | GOOD, ("not a URL",)),
        (None, {URL: "https://idp/a b"} | GOOD, ("not a URL", "%XX")),
        (None, {URL: "https://idp/\u00e4"} | GOOD, ("not a URL", "%XX")),
        (None, {URL: "https://idp/t", ID: "me"}, (CLIENT_SECRET, "missing")),
        ('clientId="other"', {URL: "https://idp/t"} | GOOD, (ID, "clientId", "different values")),
        ('oauth.access.token="x"', {URL: "https://idp/t"} | GOOD, (URL, "oauth.access.token")),
        (None, {"sasl.password": "x", HANDLER: "a:B"}, (HANDLER, "sasl.password")),
        (None, {HANDLER: "Mine"}, ("can't be obeyed", "module:Name")),
        (None, {"sasl.username": "u", "sasl.password": "x"}, ("sasl.username", "no names")),
        ('oauth.refresh.token="x"', {}, ("oauth.refresh.token", "not supported")),
        ('extension_auth="x"', {"sasl.password": "x"}, ("extension auth",)),
        ('extension_a1="x"', {"sasl.password": "x"}, ("extension a1",)),
        ('extension_a="\\1"', {"sasl.password": "x"}, ("extension a is empty, or not ASCII",)),
    ],
)
def test_what_is_wrong_with_a_tokens_origin_is_named(jaas, options, words):
    with pytest.raises(ConfigError) as raised:
        oauth(jaas, options)
    for word in words:
        assert word in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_plain_http_is_for_this_machine(host):
    assert isinstance(oauth(None, {URL: f"http://{host}:1/t"} | GOOD).source, ClientCredentials)


@given(url=st.text(max_size=40) | st.from_regex(r"(https?|file)://?[^ ]{0,30}", fullmatch=True))
def test_any_url_is_a_source_or_an_error(url):
    try:
        found = oauth(None, {URL: url} | GOOD)
    except ConfigError:
        return
    assert isinstance(found.source, ClientCredentials | TokenFile)


BASE = {"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SASL_SSL"}


def test_a_reference_is_resolved_by_the_task_only():
    by_reference = {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
    }
    assert parse_sink_config(BASE | by_reference).warnings == ()
    inside = 'PlainLoginModule required username="u" password="${file:/run/p}";'
    whole = "${file:/run/client.properties:sasl.jaas.config}"
    for jaas in (inside, whole):
        options = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas}
        assert parse_sink_config(BASE | options).warnings == ()
    url = {"kafka.sasl.mechanism": "OAUTHBEARER", f"kafka.{URL}": "${env:URL}", f"kafka.{ID}": "i"}
    parse_sink_config(BASE | url | {f"kafka.{CLIENT_SECRET}": "${env:S}"})


def test_javas_only_settings_are_refused_where_they_matter():
    options = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u",
               "kafka.sasl.password": "p"}  # fmt: skip
    with pytest.raises(ConfigError, match=r"sasl\.login\.class"):
        parse_sink_config(BASE | options | {"kafka.sasl.login.class": "com.acme.Login"})
    with pytest.raises(ConfigError, match=r"assertion\.file"):
        parse_sink_config(BASE | options | {"kafka.sasl.oauthbearer.assertion.file": "/x"})
    found = parse_sink_config(BASE | options | {"kafka.sasl.kerberos.kinit.cmd": "/bin/kinit"})
    (warning,) = found.warnings
    assert "kinit.cmd' has no effect" in warning
