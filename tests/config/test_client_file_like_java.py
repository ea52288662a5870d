"""Properties files and login modules, read by Java and Kafka themselves."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

from spark_kafka_sink.base.security.java_properties import parse_properties
from spark_kafka_sink.base.security.password import Password, text_of
from spark_kafka_sink.base.security.secret_references import resolve
from tests.java_programs import run_java

pytestmark = pytest.mark.broker  # needs Kafka's jars

#: What a properties file is made of, so that random ones meet every rule.
PIECES = [
    "a", "b.c", "key", " ", "  ", "\t", "\f", "=", ":", "#", "!", "\\", "\\\\", "\\\\\\", "\n",
    "\r", "\r\n", "\\\n", "\\\r\n", "\\n", "\\t", "\\r", "\\f", "\\q", "\\=", "\\:", "\\ ", "\\#",
    "\\u0041", "\\u00fc", "é", "\x85", "\u2028", "\x0b", "\x1c", "\0", "${env:X}", "\\\n  ",
    "\n \n", "value",
]  # fmt: skip
PASSWORD = [
    "a", "'", '"', "\\", "\n", "\r", "\t", ";", "=", " ", "//", "/*", "*/", "ü", "\\n", "0",
    "\\u0041", "${env:X}", "\x07", "#", "\x7f", "😀",
]  # fmt: skip
CLIENTS = Path(__file__).parents[2] / "conf" / "clients"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def decoded(line):
    def text(part):
        return base64.b64decode(part + "=" * (-len(part) % 4)).decode()

    return {text(n): text(v) for n, _, v in (pair.partition("=") for pair in line.split())}


def named(properties):
    """Without the empty name: whether a lone backslash at the end makes one depends, in Java, on
    where its buffer ends.
    """
    return {name: value for name, value in properties.items() if name}


def ask(questions):
    """Java's answer to each (kind, text)."""
    lines = "".join(f"{kind} {encoded(text)}\n" for kind, text in questions)
    return run_java("ClientFile", [], lines).splitlines()


def test_files_are_read_as_java_and_kafka_read_them(monkeypatch):
    choice = random.Random(20_261_121)
    files = ["".join(choice.choices(PIECES, k=choice.randint(1, 14))) for _ in range(4_000)]
    passwords = ["".join(choice.choices(PASSWORD, k=choice.randint(1, 8))) for _ in range(1_000)]
    for password in passwords:
        # The module is read before references are looked up: whatever a secret holds is its value.
        monkeypatch.setenv("PW", password)
        quote = choice.choice("'\"")
        jaas = f'{MODULE} username=u password={quote}${{env:PW}}{quote} last="1";'
        found = resolve({"sasl.jaas.config": Password(jaas)})["sasl.jaas.config"]
        assert text_of(found.get("password")) == password
    clients = [path.read_text() for path in sorted(CLIENTS.glob("*.properties"))]
    kinds = [("P", files), ("C", clients)]
    answers = ask([(kind, text) for kind, texts in kinds for text in texts])
    # One program for both questions: a JVM takes longer to start than to answer.
    assert answers[len(files) :] == ["taken"] * len(clients)
    for text, answer in zip(files, answers, strict=False):
        assert named(parse_properties(text)) == named(decoded(answer)), repr(text)
