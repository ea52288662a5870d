"""docs/migration.md: each block of Spark's own sink and its twin are code, and mean the same."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spark_kafka_sink.base.security.secret_references import has_references
from spark_kafka_sink.config.names.given import SPARK_OPTIONS
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS
from spark_kafka_sink.config.parsing import parse_sink_config

PAGE = (Path(__file__).parents[2] / "docs" / "migration.md").read_text()
#: What a variable in a block stands for.
VALUES = {"password": "s3cret", "chain": "-----BEGIN CERTIFICATE-----", "key": "-----BEGIN PRIV"}


@dataclass
class Written:
    """The format and the options of one side."""

    format: str = ""
    options: dict[str, str] = field(default_factory=dict)


def twins():
    """The two columns of every block that has both."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        head, *lines = block.splitlines()
        if not head.startswith("# before"):
            continue
        at = head.index("# after")
        yield (
            "\n".join(line[:at].rstrip() for line in lines),
            "\n".join(line[at:] for line in lines),
        )


def written(source):
    """What the calls of .format() and .option() say."""
    found = Written()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        arguments = [eval(compile(ast.Expression(a), "", "eval"), {}, dict(VALUES))
                     for a in node.args if node.func.attr in ("format", "option")]  # fmt: skip
        if node.func.attr == "format":
            (found.format,) = arguments
        elif node.func.attr == "option":
            name, value = arguments
            assert name not in found.options, name
            found.options[name] = value
    return found


TWINS = [(written(left), written(right)) for left, right in twins()]


def test_there_are_blocks_for_plain_sasl_and_tls():
    assert len(TWINS) == 3
    protocols = [right.options.get("kafka.security.protocol") for _, right in TWINS]
    assert protocols == [None, "SASL_SSL", "SSL"]


@pytest.mark.parametrize(("left", "right"), TWINS)
def test_a_block_and_its_twin_have_the_same_options(left, right):
    assert (left.format, right.format) == ("kafka", "kprod")
    assert left.options.keys() == right.options.keys()
    for name, value in left.options.items():
        changed = right.options[name]
        if changed != value:
            store = name.endswith("store.location")
            assert store or PRODUCER_OPTIONS[name.removeprefix("kafka.")].secret, name
            assert store or has_references(changed), name


@pytest.mark.parametrize(("left", "right"), TWINS)
def test_the_twin_is_taken_without_a_warning(left, right):
    options = {n: v for n, v in right.options.items() if n not in SPARK_OPTIONS}
    config = parse_sink_config(options)
    assert config.warnings == ()
    assert config.topic == left.options["topic"]


@pytest.mark.parametrize(("left", "right"), TWINS)
def test_the_block_itself_is_taken_but_for_what_the_table_says(left, right):
    """Unchanged, it means the same; only a key that Spark would show is refused."""
    options = {n: v for n, v in left.options.items() if n not in SPARK_OPTIONS}
    inline = options.pop("kafka.ssl.keystore.key", None)
    if inline is not None:  # what belongs to the key has no effect without it
        del options["kafka.ssl.keystore.certificate.chain"], options["kafka.ssl.keystore.type"]
        del options["kafka.ssl.key.password"]
    assert (inline is None) == ("kafka.ssl.keystore.key" not in right.options)
    assert "| `kafka.ssl.keystore.key` | it must be a reference" in PAGE
    config = parse_sink_config(options)
    twin = parse_sink_config({n: v for n, v in right.options.items() if n not in SPARK_OPTIONS})
    assert config.producer.security_protocol == twin.producer.security_protocol
    assert config.producer.acks == twin.producer.acks
    assert config.producer.compression_type == twin.producer.compression_type


def test_every_option_of_the_table_is_known():
    table = PAGE.partition("## If your job has TLS or SASL options")[2].partition("## ")[0]
    names = re.findall(r"`kafka\.([a-z.]*[a-z])`", table)
    assert len(names) > 9
    assert set(names) <= PRODUCER_OPTIONS.keys()
