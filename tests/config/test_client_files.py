"""conf/clients: each file is what this package takes, and holds no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.config.logins.sasl_settings import sasl_settings
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_sink_config

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "conf" / "clients").glob("*.properties"))
DOCS = (ROOT / "docs" / "security.md").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_provider_s_file_is_taken_without_a_warning(file):
    """So each line is obeyed: one of no effect would be warned of."""
    config = parse_sink_config({"configFile": str(file), "topic": "t"})
    assert config.warnings == ()
    assert config.producer.security_protocol in ("SSL", "SASL_SSL"), "nobody else can listen"
    assert config.producer.enable_idempotence


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_provider_s_secrets_are_references(file):
    properties = parse_properties(file.read_text())
    for name, value in properties.items():
        if PRODUCER_OPTIONS[name].secret and name != "sasl.jaas.config":
            assert re.fullmatch(r"\$\{(env|file):[^}]+\}", value), name
    for secret in re.findall(r'(?:password|clientSecret)="([^"]*)"', file.read_text()):
        assert re.fullmatch(r"\$\{(env|file):[^}]+\}", secret)


@pytest.mark.parametrize(
    "file", [f for f in FILES if "SASL_SSL" in f.read_text()], ids=lambda file: file.stem
)
def test_a_provider_s_login_is_understood(file):
    """The driver can't read a login module that is a reference; here nothing is looked up."""
    properties = parse_properties(file.read_text())
    sasl = {name: value for name, value in properties.items() if name.startswith("sasl.")}
    assert sasl_settings(sasl).mechanism == properties["sasl.mechanism"]


def test_each_file_is_named_in_the_recipes():
    recipes = DOCS.partition("\n## Recipes\n")[2].partition("\n## ")[0]
    assert [file.stem for file in FILES if f"`{file.stem}`" not in recipes] == []
