"""Security blocks as vendors print them, with values in the place of their variables, and each of
their settings alike in every place and spelling.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.oauth_settings import AwsLogin, ClientCredentials
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.network.auth.login_factory import new_login

AWS = "software.amazon.msk.auth.iam."
KAFKA = "org.apache.kafka.common.security.oauthbearer."
CLIENT, LOGIN = (
    "kafka.sasl.client.callback.handler.class",
    "kafka.sasl.login.callback.handler.class",
)
#: Databricks, "Use Amazon Managed Streaming for Kafka with IAM".
DATABRICKS_MSK = {
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": f"shadedmskiam.{AWS}IAMLoginModule required;",
    "kafka.security.protocol": "SASL_SSL",
    CLIENT: f"shadedmskiam.{AWS}IAMClientCallbackHandler",
}
#: Databricks, "Service principal authentication with Microsoft Entra ID and Azure Event Hubs".
DATABRICKS_ENTRA = {
    "kafka.sasl.jaas.config": (
        f"kafkashaded.{KAFKA}OAuthBearerLoginModule required"
        ' clientId="app" clientSecret="hidden" scope="https://hub/.default" ssl.protocol="SSL";'
    ),
    "kafka.sasl.oauthbearer.token.endpoint.url": (
        "https://login.microsoft.com/tenant/oauth2/v2.0/token"
    ),
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    LOGIN: f"kafkashaded.{KAFKA}secured.OAuthBearerLoginCallbackHandler",
}
#: AWS, README of aws-msk-iam-auth, "Configuring a Kafka client ... with SASL OAUTHBEARER".
AWS_OAUTHBEARER = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "OAUTHBEARER",
    "kafka.sasl.jaas.config": f"{KAFKA}OAuthBearerLoginModule required;",
    LOGIN: f"{AWS}IAMOAuthBearerLoginCallbackHandler",
    CLIENT: f"{AWS}IAMOAuthBearerLoginCallbackHandler",
}
ENTRA = ClientCredentials(
    "https://login.microsoft.com/tenant/oauth2/v2.0/token", "app", Password("hidden"), 10_000,
    10_000, "https://hub/.default",
)  # fmt: skip


def parsed(block):
    """The configuration, and what its SASL settings name as the login or the token's source."""
    config = parse_sink_config({"kafka.bootstrap.servers": "b:9093", "topic": "t"} | block)
    login = sasl_settings(dict(config.producer.security)).login
    return config, getattr(login, "source", login)


@pytest.mark.parametrize(
    ("block", "source"),
    [(DATABRICKS_MSK, AwsLogin()), (DATABRICKS_ENTRA, ENTRA), (AWS_OAUTHBEARER, AwsLogin())],
    ids=["databricks msk", "databricks entra", "aws oauthbearer"],
)
def test_a_block_that_a_vendor_prints_is_taken(block, source):
    assert parsed(block)[1] == source


@pytest.mark.parametrize("shading", ["", "kafkashaded.", "shadedmskiam.", "a_shaded9."])
@pytest.mark.parametrize("option", [CLIENT, LOGIN])
def test_a_class_counts_below_any_vendors_package_in_each_option(shading, option):
    block = AWS_OAUTHBEARER | {option: f"{shading}{AWS}IAMOAuthBearerLoginCallbackHandler"}
    block["kafka.sasl.jaas.config"] = f"{shading}{KAFKA}OAuthBearerLoginModule required;"
    assert parsed(block)[1] == AwsLogin()


def test_a_python_package_that_is_called_shaded_is_no_vendors():
    block = DATABRICKS_ENTRA | {LOGIN: "shaded_vault.Tokens"}
    del block["kafka.sasl.oauthbearer.token.endpoint.url"]
    assert parsed(block)[1].path == "shaded_vault.Tokens"


@pytest.mark.parametrize("option", [CLIENT, LOGIN])
def test_the_class_of_iam_may_stand_in_either_option(option):
    block = {name: value for name, value in DATABRICKS_MSK.items() if name != CLIENT}
    assert parsed(block | {option: DATABRICKS_MSK[CLIENT]})[1] == AwsLogin()


def test_awss_class_as_the_clients_handler_alone_gives_the_token():
    alone = {name: value for name, value in AWS_OAUTHBEARER.items() if name != LOGIN}
    assert parsed(alone)[1] == AwsLogin()
    credentials = "kafka.sasl.oauthbearer.client.credentials.client"
    two = {f"{credentials}.id": "i", f"{credentials}.secret": "s"} | DATABRICKS_ENTRA
    del two["kafka.sasl.jaas.config"]
    with pytest.raises(ConfigError, match=r"comes from .*client\.callback.* and .*endpoint\.url"):
        parsed(two | {CLIENT: AWS_OAUTHBEARER[CLIENT]})


@pytest.mark.parametrize(
    ("block", "handler"),
    [
        (DATABRICKS_ENTRA, f"{AWS}IAMClientCallbackHandler"),
        (DATABRICKS_MSK, f"{AWS}IAMOAuthBearerLoginCallbackHandler"),
        (DATABRICKS_ENTRA, "com.example.Handler"),
    ],
)
def test_a_class_of_another_mechanism_or_of_ones_own_is_refused(block, handler):
    with pytest.raises(ConfigError, match="can't be obeyed: it is Java, or not of") as raised:
        parsed(block | {CLIENT: handler})
    assert handler in raised.value.message


IDLE = ["protocol", "provider", "keymanager.algorithm", "trustmanager.algorithm"]
REGISTRY = {
    "valueColumns": "*", "valueFormat": "avro", "schema.registry.url": "https://registry:8081",
}  # fmt: skip


@pytest.mark.parametrize("name", IDLE)
def test_javas_choice_of_tls_is_the_same_warning_in_each_place(name):
    inner = f'ssl.{name}="SSL" oauth.ssl.{name}="TLS"'
    plain = DATABRICKS_ENTRA["kafka.sasl.jaas.config"].replace(' ssl.protocol="SSL"', "")
    block = DATABRICKS_ENTRA | {"kafka.sasl.jaas.config": plain.replace(";", f" {inner};")}
    config, source = parsed(
        block | REGISTRY | {f"kafka.ssl.{name}": "x", f"schema.registry.ssl.{name}": "x"}
    )
    names = [
        f"'kafka.ssl.{name}'", f"'ssl.{name} of kafka.sasl.jaas.config'",
        f"'oauth.ssl.{name} of kafka.sasl.jaas.config'", f"'schema.registry.ssl.{name}'",
    ]  # fmt: skip
    for shown in names:
        assert len([one for one in config.warnings if f"Option {shown} has no effect" in one]) == 1
    assert source == ENTRA, "nothing of it reaches the token's endpoint"
    assert f"schema.registry.ssl.{name}" not in dict(config.schemas.registry)


def test_a_login_is_made_of_each_block():
    for block in (DATABRICKS_ENTRA, AWS_OAUTHBEARER):
        config, _ = parsed(block)
        assert new_login(sasl_settings(dict(config.producer.security)), SystemClock()) is not None
