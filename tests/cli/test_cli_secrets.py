"""A secret on a command line is one in the shell's history and in ``ps``: kprod says so."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.cli.app import app

SCRAM = "a.ScramLoginModule required username=u"


def check(*options: str):
    """With one option more that is wrong, so that no broker is asked."""
    words = [word for one in (*options, "nonsense=1") for word in ("-o", one)]
    return CliRunner().invoke(app, ["check", "-b", "127.0.0.1:1", *words])


@pytest.mark.parametrize(
    "option",
    [
        "kafka.sasl.password=canary9",
        "KAFKA.Sasl.Password=canary9",
        "sasl.password=canary9",
        "kafka.sasl.pasword=canary9",
        "kafka.ssl.keystore.key=canary9",
        "kafka.ssl.truststore.password=canary9${env:X}",
        "kafka.sasl.jaas.config=canary9",
        f"kafka.sasl.jaas.config={SCRAM} password=canary9;",
        f"kafka.sasl.jaas.config={SCRAM} pasword=canary9;",
    ],
)
def test_a_secret_on_the_command_line_is_a_warning(option):
    run = check(option)
    assert run.exit_code == 2
    warning = run.stderr.splitlines()[0]
    assert warning.startswith("kprod: warning: [KP0122] ")
    assert option.partition("=")[0] in warning
    for word in ("the shell's history and ps", "${env:NAME}", "replace it"):
        assert word in warning
    assert "canary9" not in run.output + run.stderr


@pytest.mark.parametrize(
    "option",
    [
        "kafka.sasl.password=${env:PW}",
        "kafka.sasl.username=u",
        "kafka.ssl.truststore.certificates=-----BEGIN",
        "kafka.ssl.truststore.location=/ca.pem",
        f"kafka.sasl.jaas.config={SCRAM} password=${{file:/pw}};",
        "kafka.acks=all",
    ],
)
def test_what_is_no_secret_is_no_warning(option):
    assert "KP0122" not in check(option).stderr


@pytest.mark.parametrize("way", ["${env:NAME}", "${file:/path}", "--config"])
def test_a_secret_is_given_as_the_warning_asks(tmp_path, monkeypatch, way):
    told = check("kafka.sasl.password=canary9").stderr
    assert "give a reference, ${file:/path/to/it} or ${env:NAME}, or a file by --config" in told
    secret = tmp_path / "secret"
    secret.write_text("canary9")
    monkeypatch.setenv("NAME", "canary9")
    login = "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=u\n"
    given = {"${env:NAME}": "${env:NAME}", "${file:/path}": f"${{file:{secret}}}"}.get(way)
    file = tmp_path / "client.properties"
    file.write_text(login + ("" if given else "sasl.password=canary9\n"))
    options = ["-o", f"kafka.sasl.password={given}"] if given else []
    run = CliRunner().invoke(
        app, ["check", "-b", "127.0.0.1:1", "-c", str(file), *options, "--timeout", "1"]
    )
    assert "KP0122" not in run.stderr
    assert run.exit_code == 1, "its settings are right, and no broker is there"
    assert "canary9" not in run.output + run.stderr


def test_an_address_with_a_password_is_not_shown():
    run = CliRunner().invoke(app, ["check", "-b", "user:canary9@b:1"])
    assert run.exit_code == 2
    assert "[KP0105]" in run.stderr
    assert "replace it" in run.stderr
    assert "canary9" not in run.output + run.stderr


def test_an_option_given_twice_is_wrong_usage():
    run = check("kafka.security.protocol=SSL", "kafka.security.protocol=PLAINTEXT")
    assert run.exit_code == 2
    assert "a name comes twice" in run.stderr


def test_the_hint_of_a_login_module_is_shown(tmp_path):
    """Its password="..." was taken for a secret, and the whole error hidden."""
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=b:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={SCRAM} password=canary9\n"
    )
    run = CliRunner().invoke(app, ["check", "-c", str(file)])
    assert run.exit_code == 2
    assert "[KP0131] sasl.jaas.config can't be read: an option's name, or the ; at" in run.stderr
    assert 'it looks like: org.example.SomeLoginModule required username="..."' in run.stderr
    assert "canary9" not in run.output + run.stderr
