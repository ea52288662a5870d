"""Options of login modules: every one that is taken counts, alone and beside any other."""

from __future__ import annotations

from itertools import combinations

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.config.logins.security_rules import MANY, login_modules
from spark_kafka_sink.config.option import OptionType, Status
from spark_kafka_sink.config.option_table import MECHANISMS
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.network.auth.token_sources import token_fetcher

URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"
HANDLER = "sasl.login.callback.handler.class"
IAM = "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler"

#: Options of Java's that say what is so by default, so that nothing changes without them.
DEFAULTS = {"tokenauth", "useKeyTab", "useTicketCache"}
#: What a login module stands beside, with what it holds.
LOGINS = [
    ("PLAIN", "PlainLoginModule", {}, {"username": "u", "password": "p"}),
    ("SCRAM-SHA-256", "ScramLoginModule", {}, {"username": "u", "password": "p"}),
    ("AWS_MSK_IAM", "IAMLoginModule", {}, {}),
    ("GSSAPI", "Krb5LoginModule", {}, {"serviceName": "kafka"}),
    ("GSSAPI", "Krb5LoginModule", {}, {"serviceName": "kafka", "keyTab": "/k", "principal": "p"}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {URL: "https://idp/t"},
     {"clientId": "i", "clientSecret": "s"}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {URL: "https://idp/t", ID: "i", SECRET: "s"}, {}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {URL: "http://localhost/t", ID: "i", SECRET: "s"},
     {}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {URL: "file:/token"}, {}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {"sasl.password": "a.b.c"}, {}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {HANDLER: IAM}, {}),
    ("OAUTHBEARER", "OAuthBearerLoginModule", {}, {"unsecuredLoginStringClaim_sub": "u"}),
]  # fmt: skip
#: Beside the login module.
OPTIONS = {
    URL: "https://other/t",
    ID: "another",
    SECRET: "another",
    "sasl.oauthbearer.scope": "another",
    "sasl.oauthbearer.header.urlencode": True,
    "sasl.password": "another",
    "sasl.username": "another",
    "sasl.kerberos.service.name": "another",
    HANDLER: "some.module:Name",
}


def rows(module: str) -> dict[str, str]:
    """Every option of the module that is obeyed, with a value of its own that is legal."""
    found = {}
    for option in login_modules()[module].options.values():
        if option.status is Status.HONOURED:
            name = f"{option.name}a" if option.name.endswith(MANY) else option.name
            value = "true" if option.type is OptionType.BOOLEAN else f"v{len(found)}"
            if "NumberClaim" in name or "Seconds" in name:
                value = f"{len(found)}"
            if name.endswith("type"):
                value = "PKCS12"
            found[name] = "https" if name.endswith("algorithm") else value
    return found


def settings(mechanism, module, options, inner):
    """What they mean, or None when they are refused."""
    text = " ".join(f'{name}="{value}"' for name, value in inner.items())
    given = options | {"sasl.jaas.config": f"a.{module} required {text};"}
    try:
        config = parse_producer_config(
            {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL"}
            | {"sasl.mechanism": mechanism}
            | given
        )
    except ConfigError:
        return None
    return sasl_settings(dict(config.security))


@pytest.mark.parametrize(
    ("mechanism", "module", "options", "inner"),
    LOGINS,
    ids=[f"{m} {'+'.join([*o, *i])}" for m, _, o, i in LOGINS],
)
def test_what_is_taken_counts_alone_and_in_every_pair(mechanism, module, options, inner):
    """Without it the settings are others, or none. Else its user believes what is not so."""
    assert settings(mechanism, module, options, inner) is not None
    table = rows(module) | OPTIONS
    if options.get(HANDLER) == IAM:
        table |= rows("IAMLoginModule")
    more = [name for name in table if name not in inner and name not in options]

    def of(*names):
        within = {n: table[n] for n in names if n not in OPTIONS}
        beside = {n: table[n] for n in names if n in OPTIONS}
        return settings(mechanism, module, options | beside, inner | within)

    idle, taken = [], 0
    for names in [*((n,) for n in more), *combinations(more, 2)]:
        found = of(*names)
        if found is None:
            continue
        taken += 1
        for name in set(names) - DEFAULTS:
            if of(*(n for n in names if n != name)) == found:
                idle.append((name, names))
    assert idle == []
    assert taken or "username" in inner


def test_strimzis_extensions_are_sent():
    found = settings(*LOGINS[5][:3], LOGINS[5][3] | {"oauth.sasl.extension.logicalCluster": "l"})
    assert found.login.extensions == (("logicalCluster", "l"),)


def test_much_copied_kerberos_options_are_no_error():
    """Java's module has no renewTicket and no client, and many configurations do."""
    inner = {"keyTab": "/k", "principal": "p", "serviceName": "kafka", "useKeyTab": "true"}
    assert settings("GSSAPI", "Krb5LoginModule", {}, inner | {"renewTicket": "true"})
    assert settings("GSSAPI", "Krb5LoginModule", {}, inner | {"client": "true"})


def test_every_mechanism_has_its_login_module():
    served = [m for module in login_modules().values() for m in module.mechanisms]
    assert sorted(served) == sorted(MECHANISMS)


@pytest.mark.parametrize(
    ("module", "name", "meant"),
    [
        (module, wrong, name)
        for module, known in login_modules().items()
        for name in known.options
        if known.options[name].status is Status.HONOURED and not name.endswith(MANY)
        for wrong in {name[:-2] + name[-1], name.swapcase()} - set(known.options)
    ],
)
def test_a_misspelt_name_is_an_error_with_the_right_one(module, name, meant):
    """A letter less, or another case; and when a secret was meant, that it was shown."""
    mechanism = login_modules()[module].mechanisms[0]
    with pytest.raises(ConfigError) as raised:
        sasl_settings(
            {
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": f"a.{module} required {name}=canary9;",
            }
        )
    text = str(raised.value)
    assert f"{module} has no option {name}" in text
    assert f"did you mean {meant}?" in text
    assert "canary9" not in text
    assert ("replace it" in text) is login_modules()[module].options[meant].secret


@pytest.mark.parametrize(
    ("module", "mechanism", "options"),
    [
        ("Krb5LoginModule", "GSSAPI", 'useKeyTab=" true " keyTab="/k" principal="p"'),
        ("Krb5LoginModule", "GSSAPI", 'serviceName="kafka" useTicketCache="false "'),
        ("ScramLoginModule", "SCRAM-SHA-256", 'username="u" password="p" tokenauth="true "'),
    ],
)
def test_a_switch_with_a_blank_is_an_error(module, mechanism, options):
    """Java does not trim it: to a JVM it is neither true nor false."""
    jaas = f"a.{module} required {options};"
    with pytest.raises(ConfigError, match="must not begin or end with a blank"):
        sasl_settings({"sasl.mechanism": mechanism, "sasl.jaas.config": jaas})


def test_an_option_that_is_there_is_not_suggested():
    jaas = 'a.PlainLoginModule required username="u" password="p" serviceName="kafka";'
    with pytest.raises(ConfigError) as raised:
        sasl_settings({"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    assert "it has username, password" in (raised.value.hint or "")


def test_a_wrong_store_of_the_endpoint_is_an_error_at_once(tmp_path):
    """When the login is made; not when the first connection needs a token."""
    options = {URL: "https://idp/t", ID: "i", SECRET: Password("s")}
    jaas = f'a.OAuthBearerLoginModule required ssl.truststore.location="{tmp_path}/absent.pem";'
    found = sasl_settings({"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas} | options)
    with pytest.raises(ConfigError, match=r"\] sasl.jaas.config: ssl\.truststore.*can't be read"):
        token_fetcher(found.login, None)
