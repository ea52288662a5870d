"""What an operator's lists, in the environment, keep options from; nothing is opened or asked."""

from __future__ import annotations

import json
import logging
import socket

import pytest

from spark_kafka_sink import KafkaProducer
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security import allow_lists, import_paths
from spark_kafka_sink.base.security.allow_lists import NotAllowedError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.logins.oauth_settings import TokenFile
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.config.names.config_file import read_lines
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.network.auth.login_factory import new_login
from spark_kafka_sink.network.auth.token_sources import token_fetcher
from tests.sasl.identity_provider import IdentityProvider, jwt, settings_of
from tests.security.files_of_options import READERS, publish_to

KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"


@pytest.fixture
def here(tmp_path):
    """Two directories with a file each; the first is what a test allows."""
    for name in ("allowed", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("k=v\n")
    return tmp_path


@pytest.mark.parametrize("what", READERS)
def test_a_file_beside_the_allowed_ones_is_not_read(what, here, limit):
    """Also by a way that leads out again, and whether it exists or not."""
    limit(allow_lists.PATHS, f"{here}/allowed, /nowhere")
    (here / "allowed" / "link").symlink_to(here / "other" / "file")
    for path in ("other/file", "allowed/../other/file", "allowed/link", "other/absent", "allowed2"):
        with pytest.raises(NotAllowedError, match="KPROD_ALLOWED_PATHS") as raised:
            READERS[what](here / path)
        assert raised.value.message.startswith(what)
        assert "not allowed here" in raised.value.message


@pytest.mark.parametrize("what", READERS)
def test_an_allowed_file_is_read(what, here, limit):
    """By a symbolic link within the directory, too: what Kubernetes makes of a secret."""
    limit(allow_lists.PATHS, f"{here}/allowed/")
    (here / "allowed" / "link").symlink_to(here / "allowed" / "file")
    for path in ("file", "link"):
        told = ""
        try:
            READERS[what](here / "allowed" / path)
        except NotAllowedError:
            raise
        except Exception as error:  # it was read, and is no store and no token
            told = f"{error}"
        assert "can't be read" not in told


def test_an_empty_list_allows_nothing_and_an_unset_one_all(here, limit):
    reference = {"sasl.password": Password(f"${{file:{here}/other/file}}")}
    assert resolve(reference)["sasl.password"].value == "k=v"
    for empty in ("", " , "):
        limit(allow_lists.PATHS, empty)
        with pytest.raises(NotAllowedError):
            resolve(reference)


def test_config_files_have_a_list_of_their_own(here, limit):
    file = here / "other" / "file"
    limit(allow_lists.PATHS, f"{here}/allowed")
    limit(allow_lists.CONFIG_FILES, f"{file}")
    assert read_lines(str(file)) == [("k", "v")]
    # The lines of it, where its secrets are, and no other file; nor all of it as one secret.
    assert resolve({"sasl.password": Password(f"${{file:{file}:k}}")})["sasl.password"].value == "v"
    with pytest.raises(NotAllowedError):
        resolve({"sasl.password": Password(f"${{file:{file}}}")})
    with pytest.raises(NotAllowedError, match="KPROD_ALLOWED_CONFIG_FILES"):
        read_lines(str(here / "allowed" / "file"))


def test_variables_are_allowed_by_a_pattern_for_their_whole_name(limit, monkeypatch):
    monkeypatch.setenv("KAFKA_PW", "pw")
    monkeypatch.setenv("XKAFKA_PW", "no")
    limit(allow_lists.ENV_PATTERN, "KAFKA_[A-Z]+")
    assert resolve({"sasl.password": Password("${env:KAFKA_PW}")})["sasl.password"].value == "pw"
    for name in ("HOME", "XKAFKA_PW", "KAFKA_PW2", "KPROD_NOT_SET"):
        with pytest.raises(NotAllowedError, match="KPROD_ALLOWED_ENV_PATTERN") as raised:
            resolve({"sasl.password": Password(f"${{env:{name}}}")})
        assert f"${{env:{name}}}" in raised.value.message
    jaas = Password('X required password="${env:HOME}";')
    with pytest.raises(NotAllowedError):
        resolve({"sasl.jaas.config": jaas})


def test_a_reference_of_a_config_files_line_must_be_allowed(here, limit):
    (here / "allowed" / "client").write_text("a=${env:HOME}\nb=${file:/etc/hostname}\n")
    limit(allow_lists.PATHS, f"{here}/allowed")
    limit(allow_lists.ENV_PATTERN, "NONE")
    for key in "ab":
        reference = Password(f"${{file:{here}/allowed/client:{key}}}")
        with pytest.raises(NotAllowedError):
            resolve({"sasl.password": reference})


def test_a_token_endpoint_that_is_not_on_the_list_is_never_asked(limit):
    with IdentityProvider() as allowed, IdentityProvider() as other:
        limit(allow_lists.URLS, f"https://idp.example/token,{allowed.url}")
        assert token_fetcher(sasl_settings(allowed.options()).login, SystemClock())("b").value
        for url in (other.url, f"{allowed.url}/", f"{allowed.url}?x=1", allowed.url.upper()):
            options = other.options() | {"sasl.oauthbearer.token.endpoint.url": url}
            with pytest.raises(ConfigError, match=r"KPROD_ALLOWED_URLS|not a URL"):
                token_fetcher(sasl_settings(options).login, SystemClock())
        assert len(allowed.asked) == 1
        assert other.asked == []


def test_one_by_reference_is_named_by_it(limit, monkeypatch):
    limit(allow_lists.URLS, "https://idp.example/token")
    monkeypatch.setenv("WHERE", "https://canary9.example/token")
    with IdentityProvider() as provider:
        options = provider.options() | {"sasl.oauthbearer.token.endpoint.url": "${env:WHERE}"}
    with pytest.raises(NotAllowedError, match=r"url=\$\{env:WHERE\} is not allowed") as raised:
        token_fetcher(sasl_settings(resolve(options)).login, SystemClock())
    assert "canary9" not in str(raised.value)


def test_a_token_file_is_a_path_and_no_endpoint(here, limit):
    (here / "allowed" / "token").write_text(jwt())
    limit(allow_lists.URLS, "")
    limit(allow_lists.PATHS, f"{here}/allowed")
    fetch = token_fetcher(settings_of(TokenFile(f"{here}/allowed/token")), SystemClock())
    assert fetch("b").value


def test_a_keytab_is_a_path(here, limit):
    limit(allow_lists.PATHS, f"{here}/allowed")
    jaas = f'{KERBEROS} serviceName="kafka" keyTab="{here}/other/file" principal="p";'
    options = {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": jaas}
    with pytest.raises(NotAllowedError, match="keyTab"):
        new_login(sasl_settings(options), SystemClock())


@pytest.mark.parametrize(
    ("entries", "path", "allowed"),
    [
        ("kprod_acme", "kprod_acme:Mine", True),
        ("kprod_acme", "kprod_acme.Mine", True),
        ("kprod_acme:Mine", "kprod_acme.Mine", True),
        ("other, kprod_acme.Mine", "kprod_acme:Mine", True),
        ("kprod_acme:abort", "kprod_acme:abort", False),
        ("os, kprod_acme", "kprod_acme:os.abort", False),
        ("kprod_acme", "kprod_acme:os.abort", False),
        ("kprod_acme", "kprod_acme:abort", False),
        ("kprod_acme", "kprod_acme:os", False),
        ("kprod_acm", "kprod_acme:Mine", False),
        ("kprod_acme:Mine", "kprod_acme:Other", False),
        ("", "kprod_acme:Mine", False),
        ("kprod_acme.Mine", "os:abort", False),
    ],
)
def test_only_what_is_on_the_list_is_imported(entries, path, allowed, tmp_path, limit, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = "import os\nfrom os import abort\nclass Mine: pass\nclass Other: pass\n"
    (tmp_path / "kprod_acme.py").write_text(code)
    limit(allow_lists.IMPORTS, entries)
    if allowed:
        assert import_paths.make(path, "partitioner.class")
        return
    with pytest.raises(NotAllowedError, match=r"partitioner\.class: "):
        import_paths.find(path, "partitioner.class")


def test_a_module_that_is_not_on_the_list_does_not_run(tmp_path, limit, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kprod_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    limit(allow_lists.IMPORTS, "kprod_acme")
    with pytest.raises(NotAllowedError, match="KPROD_ALLOWED_IMPORTS"):
        import_paths.find("kprod_evil:X", "interceptor.classes")
    assert not (tmp_path / "ran").exists()


def test_a_report_goes_to_allowed_paths_only(here, limit, caplog):
    limit(allow_lists.REPORT_PATHS, f"{here}/allowed")
    caplog.set_level(logging.WARNING)
    publish_to(f"{here}/allowed/report")
    assert json.loads((here / "allowed" / "report").read_text())["outcome"] == "aborted"
    assert caplog.text == ""
    publish_to(f"{here}/other/file")
    assert (here / "other" / "file").read_text() == "k=v\n"
    assert "KPROD_ALLOWED_REPORT_PATHS" in caplog.text
    with pytest.raises(NotAllowedError, match="reportPath="):
        allow_lists.check_report_path(f"{here}/allowed/../other/file")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (allow_lists.PATHS, "relative/path"),
        (allow_lists.CONFIG_FILES, "~/x"),
        (allow_lists.ENV_PATTERN, "KAFKA_("),
    ],
)
def test_a_list_that_can_not_be_read_is_named_and_allows_nothing(variable, value, here, limit):
    limit(variable, value)
    file = f"{here}/allowed/file"
    use = {
        allow_lists.PATHS: lambda: resolve({"sasl.password": Password(f"${{file:{file}}}")}),
        allow_lists.CONFIG_FILES: lambda: read_lines(file),
        allow_lists.ENV_PATTERN: lambda: resolve({"sasl.password": Password("${env:HOME}")}),
    }[variable]
    with pytest.raises(ConfigError, match=variable) as raised:
        use()
    assert "nothing is allowed until" in str(raised.value)


_PLAIN = {"sasl.mechanism": "PLAIN", "sasl.username": "a"}
_TOKEN = {"sasl.mechanism": "OAUTHBEARER"}
_CLIENT = {
    "sasl.oauthbearer.client.credentials.client.id": "i",
    "sasl.oauthbearer.client.credentials.client.secret": "s",
}
_URL = "sasl.oauthbearer.token.endpoint.url"
_HANDLER = "sasl.login.callback.handler.class"


@pytest.mark.parametrize(
    ("options", "variable"),
    [
        (_PLAIN | {"sasl.password": "${file:/etc/passwd}"}, allow_lists.PATHS),
        (_PLAIN | {"sasl.password": "${env:HOME}"}, allow_lists.ENV_PATTERN),
        (_TOKEN | {_URL: "file:/etc/hostname"}, allow_lists.PATHS),
        (_TOKEN | _CLIENT | {_URL: "http://HERE/token"}, allow_lists.URLS),
        (_TOKEN | {_HANDLER: "os:getcwd"}, allow_lists.IMPORTS),
        ({"partitioner.class": "os:getcwd"} | _PLAIN | {"sasl.password": "p"}, allow_lists.IMPORTS),
    ],
)
def test_foreign_brokers_get_nothing_that_is_not_allowed(options, variable, limit):
    """Not even a connection: neither the broker nor the endpoint, which are one port here."""
    for name in allow_lists.EVERY:
        limit(name, "")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        here = f"127.0.0.1:{listening.getsockname()[1]}"
        given = {n: v.replace("HERE", here) for n, v in options.items()}
        servers = {"bootstrap.servers": here, "security.protocol": "SASL_PLAINTEXT"}
        with pytest.raises(NotAllowedError, match=variable):
            KafkaProducer(servers | given)
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
        with socket.create_connection(listening.getsockname()):
            listening.accept()[0].close()  # a connection would have been seen


def test_no_list_can_be_given_as_an_option():
    """It is an unknown option, like any other."""
    for variable in allow_lists.EVERY:
        for name in (variable, f"kafka.{variable}"):
            with pytest.raises(ConfigError):
                parse_sink_config({"kafka.bootstrap.servers": "b:1", "topic": "t", name: "/"})
