"""Secrets by reference: looked up where the producer is, and distinguished from plain text."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import (
    UnresolvedReferenceError,
    file_reference,
    has_references,
    is_one_reference,
    resolve,
)
from spark_kafka_sink.config.logins.security_rules import shown_by_spark
from spark_kafka_sink.config.option import takes_references
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config

SERVERS = {"bootstrap.servers": "b:9092"}
TLS = SERVERS | {"security.protocol": "SSL", "ssl.keystore.location": "/k.pem"}
JAAS = "sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def resolved(name, text):
    value = resolve({name: Password(text)})[name]
    assert isinstance(value, Password), "a secret stays hidden when it is looked up"
    return value.value


def login_module(text):
    """The options of a login module, its references looked up."""
    return resolve({JAAS: Password(text)})[JAAS].options


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.write_text("s3cret\n")
    return path


def test_a_variable_and_a_file_are_looked_up(monkeypatch, secret_file):
    monkeypatch.setenv("PW", "from the environment")
    assert resolved("ssl.key.password", "${env:PW}") == "from the environment"
    assert resolved("ssl.key.password", f"${{file:{secret_file}}}") == "s3cret"
    assert is_one_reference(f" ${{file:{secret_file}}} ")
    assert resolved("ssl.key.password", "a ${env:PW} b") == "a from the environment b"


def test_a_path_is_resolved_and_shows_its_reference(monkeypatch):
    monkeypatch.setenv("CERTS", "/etc/certs")
    options = {"ssl.truststore.location": "${env:CERTS}/ca.pem", "ssl.cipher.suites": ("A",)}
    found = resolve(options)
    assert found == {
        "ssl.truststore.location": Password("/etc/certs/ca.pem"),
        "ssl.cipher.suites": ("A",),
    }
    assert f"{found['ssl.truststore.location']}" == "${env:CERTS}/ca.pem"


def test_only_the_newline_at_the_end_of_a_file_is_left_out(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(b" -----BEGIN\r\nlines \r\n\n")
    assert resolved("ssl.keystore.key", f"${{file:{path}}}") == " -----BEGIN\r\nlines "


def test_a_properties_files_line_resolves_its_own_references(monkeypatch, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(f'sasl.jaas.config={MODULE} \\\n  username="u" password="${{env:PW}}";\nb=2\n')
    monkeypatch.setenv("PW", 'with "quotes" and \\')
    options = login_module(file_reference(str(path), JAAS))
    assert options == {"username": "u", "password": 'with "quotes" and \\'}
    assert resolved("ssl.key.password", f"${{file:{path}:b}}") == "2"


EVIL = 'x" awsCredentialsProvider="evil:f'


@pytest.mark.parametrize(
    "text",
    [
        'M required username="a" password="${env:PW}" last=1;',
        "M required username='a' password='${env:PW}' last=1;",
        "M required username=a password=${env:PW} last=1;",
        '/* don\'t */ M required username="a" password="${env:PW}" last=1;',
        '// don\'t\nM required username="a" // it\'s "\n password=${env:PW} /* " */ last=1;',
        'M required username="a" "password" = "${env:PW}" last=1;',
    ],
)
@pytest.mark.parametrize(
    "password", [EVIL, "it's", "a b=c", "x; M required;", "/* x", "a\\", "\n", "${env:HOME}", "}"]
)
def test_a_secrets_content_never_changes_the_login_module(text, password, monkeypatch):
    monkeypatch.setenv("PW", password)
    assert login_module(text) == {"username": "a", "password": password, "last": "1"}


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(
        lambda t: "\0" not in t
    ),
    st.sampled_from(["{}", '"{}"', "'{}'", '"x{}"', "x{}"]),
    st.sampled_from(["", "/* ' */", '// "\n', "/*'\"*/"]),
)
def test_no_content_ends_any_quotes_after_any_comment(password, quotes, comment):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PW", password)
        given_text = quotes.replace("{}", "${env:PW}")
        options = login_module(f"{comment}M required {comment}password={given_text} last=1;")
    assert options == {"password": quotes.strip("\"'").replace("{}", password), "last": "1"}


def test_a_reference_to_a_whole_text_is_read_like_any_text(monkeypatch, tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("a=${env:ALL}\nb=M required password=${env:PW};\n")
    monkeypatch.setenv("ALL", 'M required password="${env:PW}";')
    monkeypatch.setenv("PW", EVIL)
    assert login_module(f"${{file:{path}:a}}") == {"password": "${env:PW}"}
    assert login_module(f"${{file:{path}:b}}") == {"password": EVIL}


def test_what_was_looked_up_is_not_looked_up_again(monkeypatch, tmp_path):
    monkeypatch.setenv("PW", "${env:OTHER}")
    monkeypatch.setenv("OTHER", "no")
    assert resolved("ssl.key.password", "${env:PW}") == "${env:OTHER}"
    path = tmp_path / "self"
    path.write_text(f"a=${{file:{path}:a}}\n")
    assert resolved("ssl.key.password", f"${{file:{path}:a}}") == f"${{file:{path}:a}}"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_without_a_reference_stays_as_it_is(text):
    if not has_references(text):
        assert resolved("ssl.key.password", text) == text


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("${env:KPROD_NOT_SET}", "environment variable that is not set"),
        ("${file:/nowhere/pw}", "No such file or directory"),
        ("${file:/proc/version:key}", "a key that the file does not have"),
    ],
)
def test_a_dangling_reference_names_option_reference_and_host(reference, problem):
    with pytest.raises(UnresolvedReferenceError) as raised:
        resolve({"ssl.key.password": Password(reference)})
    text = str(raised.value.seen_by("an executor"))
    for part in ("ssl.key.password", reference, problem, "on host", "(an executor)", "hint:"):
        assert part in text
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_an_error_shows_nothing_of_a_file(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=c4nary\nother=c4nary")
    with pytest.raises(UnresolvedReferenceError) as raised:
        resolve({"ssl.key.password": Password(f"${{file:{path}:missing}}")})
    assert "c4nary" not in str(raised.value)
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("ssl.key.password", "${env:}", "names no environment variable"),
        ("ssl.key.password", "${env:A B}", "names no environment variable"),
        ("ssl.key.password", "${file:}", "names no file"),
        ("ssl.key.password", "${vault:secret/x:y}", "the provider 'vault'"),
        ("ssl.key.password", "${dir:/x:y}", "the provider 'dir'"),
        (JAAS, f'{MODULE} username="u" password="${{secrets:a:b}}";', "the provider 'secrets'"),
        (JAAS, f'{MODULE} username="${{env:U}}" password="${{dir:/x:y}}";', "the provider 'dir'"),
        ("sasl.password", "{{secrets/scope/key}}", "{{secrets/...}} is not looked up"),
        (JAAS, f'{MODULE} password="{{{{secrets/s/k}}}}";', "{{secrets/...}} is not looked up"),
        ("client.id", "${env:NAME}", "is not looked up in this option"),
    ],
)
def test_an_unknown_reference_is_an_error_on_the_driver(name, text, problem):
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", f"kafka.{name}": text}
    with pytest.raises(ConfigError, match="kafka." + name) as raised:
        parse_sink_config(options)
    assert problem in str(raised.value)


def test_a_files_line_with_a_foreign_reference_is_not_shown(tmp_path):
    path = tmp_path / "client.properties"
    path.write_text(f'a={MODULE} password="${{secrets:sc0pe:k3y}}";\nb={{{{secrets/sc0pe/k3y}}}}\n')
    for line in "ab":
        with pytest.raises(ConfigError, match="not looked up") as caught:
            resolved(JAAS, f"${{file:{path}:{line}}}")
        assert "sc0pe" not in str(caught.value)


def test_a_password_that_resembles_a_reference_is_a_password():
    for text in ("a${b}c", "${}", "${env", "$(env:X)", "x${vault:a:b}", "{file:/x}"):
        options = TLS | {"ssl.key.password": text}
        config = parse_producer_config(options)
        assert resolve(dict(config.security))["ssl.key.password"] == Password(text)


def test_an_enumerated_option_takes_no_reference_a_secret_does():
    assert not takes_references(PRODUCER_OPTIONS["ssl.truststore.type"])
    assert not takes_references(PRODUCER_OPTIONS["bootstrap.servers"])
    assert takes_references(PRODUCER_OPTIONS["ssl.keystore.location"])
    secrets = [o for o in PRODUCER_OPTIONS.values() if o.secret]
    assert len(secrets) > 8
    assert all(map(takes_references, secrets))


def test_a_path_with_a_colon_has_no_reference_to_its_lines():
    with pytest.raises(ConfigError, match="can't be referred to"):
        file_reference("/etc/a:b", "key")


# --- what Spark shows -----------------------------------------------------------------------------

KEY = "-----BEGIN PRIVATE KEY-----\nMIIBcanary\n-----END PRIVATE KEY-----"


def test_a_secret_that_spark_shows_is_refused_inline():
    name, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    options = {"kafka.bootstrap.servers": "b:9092", "topic": "t", "kafka.security.protocol": "SSL"}
    options[f"kafka.{chain}"] = "chain"
    with pytest.raises(ConfigError, match="Spark would show it") as raised:
        parse_sink_config(options | {f"kafka.{name}": KEY})
    assert f"kafka.{name}=${{file:" in str(raised.value)
    assert "canary" not in str(raised.value)
    for reference in ("${file:/etc/key.pem}", "${env:KEY}"):
        config = parse_sink_config(options | {f"kafka.{name}": reference})
        assert (name, Password(reference)) in config.producer.security
    # A producer of one's own has no Spark that could show anything.
    parse_producer_config(SERVERS | {"security.protocol": "SSL", name: KEY, chain: "chain"})


def test_every_secret_is_hidden_by_spark_or_refused_inline(spark):
    """Spark itself redacts an option of each name."""
    from spark_kafka_sink.config.logins.security_rules import NOT_HIDDEN_BY_SPARK

    #: Not secret in themselves: certificates and a user's name; a login module names its password.
    public = {
        "ssl.truststore.certificates",
        "ssl.keystore.certificate.chain",
        "sasl.username",
        "sasl.jaas.config",
    }
    secrets = {o.name for o in PRODUCER_OPTIONS.values() if o.secret} - public
    options = spark._jvm.PythonUtils.toScalaMap({f"kafka.{name}": "c4nary" for name in secrets})
    seen = spark._jsparkSession.sessionState().conf().redactOptions(options)
    shown = {name for name in secrets if seen.apply(f"kafka.{name}") == "c4nary"}
    assert shown == set(NOT_HIDDEN_BY_SPARK)


def test_spark_hides_a_login_module_by_the_expected_words(spark):
    texts = [
        f'{MODULE} {inner}="c4nary";'
        for inner in ("apiKey", "Token", "SECRET", "accessKey", "access.key", "pass.word", "key")
    ]
    conf = spark._jsparkSession.sessionState().conf()
    for text in texts:
        options = spark._jvm.PythonUtils.toScalaMap({"kafka.sasl.jaas.config": text})
        seen = conf.redactOptions(options).apply("kafka.sasl.jaas.config")
        assert (seen == text) == bool(shown_by_spark(text, own_options=True)), text
