"""What a reference leads to is in no message, log line, repr or traceback, whatever the option is.

Here without a broker, for every option that takes references and each way to fail; with brokers and
a whole Spark application in ``test_canary.py``.
"""

from __future__ import annotations

import logging
import traceback

import pytest
import trustme

from spark_kafka_sink import KafkaProducer, foreach_batch
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.config.option import Status, takes_references
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from tests.security.canaries import new_canary, search

SERVERS = {"bootstrap.servers": "127.0.0.1:1", "max.block.ms": "20"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"

_USER = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
_TOKEN = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
    "sasl.oauthbearer.client.credentials.client.id": "i",
    "sasl.oauthbearer.client.credentials.client.secret": "s",
}

_SSL = {"security.protocol": "SSL"}
_SASL = {"security.protocol": "SASL_PLAINTEXT"}
#: Its own CA: to read the system's takes longer than all the rest.
_KEY = _SSL | {"ssl.truststore.certificates": trustme.CA().cert_pem.bytes().decode()}
#: What an option stands beside, so that it counts.
_BESIDE = {
    "ssl.": _SSL,
    "ssl.truststore.password": _SSL | {"ssl.truststore.location": "/nowhere.p12"},
    "ssl.keystore.location": _KEY,
    "ssl.keystore.password": _KEY | {"ssl.keystore.location": "/nowhere.p12"},
    "ssl.key.password": _KEY | {"ssl.keystore.location": "/nowhere.pem"},
    "ssl.keystore.key": _KEY | {"ssl.keystore.certificate.chain": "-----BEGIN"},
    "ssl.keystore.certificate.chain": _KEY | {"ssl.keystore.key": "-----BEGIN"},
    "sasl.": _SASL | _USER,
    "sasl.jaas.config": _SASL | {"sasl.mechanism": "PLAIN"},
    "sasl.oauthbearer.": _SASL | _TOKEN,
    "sasl.kerberos.service.name": _SASL | {"sasl.mechanism": "GSSAPI"},
}

OPTIONS = [
    option.name
    for option in PRODUCER_OPTIONS.values()
    if takes_references(option) and option.status is Status.HONOURED
]
#: What a file or variable may hold: a word, the lines of /etc/passwd, what no path can have, and a
#: URL that is refused for what stands in it.
CONTENTS = {
    "a word": "{}",
    "lines": "root:x:0:0:{}\nmore:{}\n",
    "a null byte": "{}\0{}",
    "an http URL": "http://{}.example/token",
    "a file URL": "file:/nowhere/{}",
    "a dotted name": "{}.{}",
    "bytes that are no UTF-8": "{}\udcff{}",
}


def beside(name: str) -> dict[str, str]:
    best = max((n for n in _BESIDE if name.startswith(n)), key=len)
    return dict(_BESIDE[best])


def everything_shown(error: BaseException | None) -> str:
    """All that a log with the traceback of ``error`` has, those that it suppresses too."""
    shown = []
    while error is not None:
        shown += [repr(error), str(error), *traceback.format_exception(error), repr(error.args)]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


def run(options: dict[str, str], caplog) -> str:
    """Everything that a producer with ``options`` shows of itself until it fails or is closed."""
    caplog.set_level(logging.DEBUG)
    shown = []
    try:
        config = parse_producer_config(SERVERS | options)
        shown += [repr(config), repr(config.security), repr(resolve(dict(config.security)))]
        with KafkaProducer(SERVERS | options) as producer:
            shown.append(repr(producer))
            producer.partitions_for("t")
    except Exception as error:
        shown.append(everything_shown(error))
    assert len("".join(shown)) > 100
    return "\n".join([*shown, caplog.text])


#: A secret is not read by us, whatever it holds; the others have checks that may fail.
CASES = [
    (name, content)
    for name in OPTIONS
    for content in (
        ("a null byte", "bytes that are no UTF-8") if PRODUCER_OPTIONS[name].secret else CONTENTS
    )
]


@pytest.mark.parametrize(("name", "content"), CASES)
def test_no_option_shows_what_its_reference_leads_to(name, content, tmp_path, monkeypatch, caplog):
    canary = new_canary(spicy=False)
    text = CONTENTS[content].replace("{}", canary)
    path = tmp_path / "mounted"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    references = {"file": f"${{file:{path}}}"}
    if "\0" not in text:
        monkeypatch.setenv("KPROD_CANARY", text)
        references["env"] = "${env:KPROD_CANARY}"
    for reference in references.values():
        shown = run(beside(name) | {name: reference}, caplog)
        hits = search([(name, shown.encode("utf-8", "replace"))], {"canary": canary})
        assert hits == set()
        assert reference in shown, "the reference itself is what is shown"


def test_the_search_finds_a_path_that_is_given_as_it_is(caplog):
    canary = new_canary(spicy=False)
    options = {"security.protocol": "SSL", "ssl.truststore.location": f"/nowhere/{canary}"}
    shown = run(options, caplog)
    assert search([("shown", shown.encode())], {"canary": canary})


CLIENT = f'{OAUTH} oauth.token.endpoint.uri="https://127.0.0.1:1/" clientId="c" clientSecret="s"'
#: Mechanism, and a login module that is looked up as a whole or in parts.
MODULES = [
    ("PLAIN", "REF"),
    ("PLAIN", f'{PLAIN} username="REF" password="p";'),
    ("OAUTHBEARER", f'{OAUTH} oauth.token.endpoint.uri="REF" clientId="c" clientSecret="s";'),
    ("OAUTHBEARER", f'{OAUTH} oauth.token.endpoint.uri="file:REF";'),
    ("OAUTHBEARER", f'{OAUTH} unsecuredLoginNumberClaim_a="REF";'),
    ("OAUTHBEARER", f'{OAUTH} oauth.access.token="t" extension_a="REF";'),
    ("OAUTHBEARER", f'{CLIENT} ssl.truststore.location="REF";'),
    ("AWS_MSK_IAM", f'{IAM} awsCredentialsProvider="REF";'),
    ("AWS_MSK_IAM", f'{IAM} awsProfileName="REF";'),
    ("GSSAPI", f'{KERBEROS} serviceName="REF" keyTab="REF" principal="REF";'),
]


@pytest.mark.parametrize(("mechanism", "module"), MODULES)
@pytest.mark.parametrize("text", ["{}", "{}.{}", "{}:{}", "json:{}", "x {};", "{} required;"])
def test_no_option_of_a_login_module_does_either(mechanism, module, text, monkeypatch, caplog):
    canary = new_canary(spicy=False)
    monkeypatch.setenv("KPROD_CANARY", text.replace("{}", canary))
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    module = module.replace("REF", "${env:KPROD_CANARY}")
    shown = run(options | {"sasl.jaas.config": module}, caplog)
    assert search([("shown", shown.encode())], {"canary": canary}) == set()


def test_settings_that_work_show_references_in_their_reprs(tmp_path, monkeypatch):
    canary = new_canary(spicy=False)
    for number, name in enumerate(("ID", "SECRET", "SCOPE")):
        monkeypatch.setenv(name, f"{canary}{number}")
    monkeypatch.setenv("URL", f"https://{canary}.example/token")
    prefix = "sasl.oauthbearer."
    given = {
        "sasl.mechanism": "OAUTHBEARER",
        f"{prefix}token.endpoint.url": "${env:URL}",
        f"{prefix}client.credentials.client.id": "${env:ID}",
        f"{prefix}client.credentials.client.secret": Password("${env:SECRET}"),
        f"{prefix}scope": "all of ${env:SCOPE}",
    }
    made = sasl_settings(resolve(given))
    assert made.login.source.url.value == f"https://{canary}.example/token"
    assert made.login.source.scope.value == f"all of {canary}2"
    shown = repr(made)
    assert canary not in shown
    for reference in ("${env:URL}", "${env:ID}", "${env:SECRET}", "all of ${env:SCOPE}"):
        assert reference in shown
    monkeypatch.setenv("WHO", canary)
    aws = f'{IAM} awsRoleArn="arn" awsRoleExternalId="{canary}" awsProfileName="${{env:WHO}}";'
    options = {"sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": Password(aws)}
    assert canary not in repr(sasl_settings(resolve(options)))
    claims = f'{OAUTH} unsecuredLoginStringClaim_sub="{canary}" extension_a="{canary}";'
    options = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": Password(claims)}
    assert canary not in repr(sasl_settings(options))


def test_what_was_looked_up_is_no_reference_again(monkeypatch):
    """Else the checks of what stands as given would be passed over."""
    monkeypatch.setenv("URL", "http://idp.example/token?x=${env:HOME}")
    options = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "${env:URL}",
        "sasl.oauthbearer.client.credentials.client.id": "id",
        "sasl.oauthbearer.client.credentials.client.secret": Password("s"),
    }
    sasl_settings(options)  # not looked up yet: nothing is known
    with pytest.raises(
        ConfigError,
        match=r"is http, so the client.s secret would be sent in the clear to \$\{env:URL\}",
    ):
        ChannelBuilder.of("SASL_SSL", resolve(options))


def test_an_empty_variable_does_not_switch_the_name_check_off(monkeypatch):
    monkeypatch.setenv("EMPTY", "")
    options = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "${env:EMPTY}"}
    with pytest.raises(ConfigError, match=r"\$\{env:EMPTY\}"):
        parse_producer_config(SERVERS | options)


def test_a_foreach_batch_shows_the_names_of_its_options_only():
    canary = new_canary(spicy=False)
    write = foreach_batch("orders", **{"kafka.sasl.password": canary, "topic": "t"})
    for shown in (repr(write), str(write), f"{write}", repr([write])):
        assert canary not in shown
        assert "orders" in shown
        assert "kafka.sasl.password" in shown


# --- inline login modules -------------------------------------------------------------------------


def sink(mechanism: str, module: str) -> SinkConfig:
    return parse_sink_config(
        {
            "kafka.bootstrap.servers": "b:9092", "topic": "t",
            "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.login.callback.handler.class": "acme:P",
            "kafka.sasl.jaas.config": module,
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    "inner",
    [
        'apiKey="canary9"',
        'vaultRole="r" apiKey="canary9"',
        'ssl.keystore.key="-----BEGIN PRIVATE KEY-----canary9"',
        'apiKey="canary9${env:X}"',
        '"clientid"="canary9"',
    ],
)
def test_an_unknown_inline_option_that_spark_shows_is_refused(inner):
    with pytest.raises(ConfigError, match="nothing in its text makes Spark hide it") as raised:
        sink("OAUTHBEARER", f"{OAUTH} {inner};")
    assert "canary9" not in everything_shown(raised.value)


@pytest.mark.parametrize(
    "inner",
    [
        'apiKey="${env:API_KEY}" vaultRole="${file:/etc/role}"',
        'apiKey="x" comment="holds a Token, so Spark hides all of it"',
        'clientId="c" extension_logicalCluster="lkc-1" scope="s"',
        'debug="true" attempts="3" empty="" awsRoleExternalId="e"',
    ],
)
def test_references_and_public_values_are_accepted(inner):
    assert sink("OAUTHBEARER", f"{OAUTH} {inner};")


def test_a_producer_of_ones_own_has_no_spark_that_could_show_it():
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    handler = {"sasl.login.callback.handler.class": "acme:P"}
    module = {"sasl.jaas.config": f'{OAUTH} apiKey="inline";'}
    assert parse_producer_config(SERVERS | options | handler | module)


# --- a user's own code ----------------------------------------------------------------------------


class Raises:
    """Made by import path, with a canary in its text."""

    error: BaseException = ValueError("canary9")

    def __init__(self):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [ValueError("canary9"), SystemExit("canary9"), ImportError("canary9"), OSError(2, "canary9")],
)
def test_a_users_exception_is_located_and_its_text_not_shown(error, monkeypatch):
    monkeypatch.setattr(Raises, "error", error)
    with pytest.raises(ConfigError, match="can't be made without arguments") as raised:
        import_paths.make(f"{__name__}:Raises", "interceptor.classes")
    shown = everything_shown(raised.value)
    assert "canary9" not in shown
    assert "in __init__ (test_references_are_not_shown.py:" in shown


@pytest.mark.parametrize("error", ["ValueError", "SystemExit", "ImportError", "AttributeError"])
def test_neither_is_that_of_a_module(error, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"kprod_raises_{error.lower()}.py").write_text(f"raise {error}('canary' + '9')\n")
    with pytest.raises(ConfigError, match="can't be imported") as raised:
        import_paths.find(f"kprod_raises_{error.lower()}:X", "partitioner.class")
    shown = everything_shown(raised.value)
    assert "canary9" not in shown
    assert f"kprod_raises_{error.lower()}.py:1" in shown


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match="No module named 'kprod_nowhere'"):
        import_paths.find("kprod_nowhere:X", "partitioner.class")
