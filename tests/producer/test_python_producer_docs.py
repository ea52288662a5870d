"""docs/python-producer.md: every snippet runs as it stands, against a real broker."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_kafka import Consumed, RealKafka

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python-producer.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TOPICS = ("events", "temperatures", "debits", "credits")


def run(snippet: str, kafka: RealKafka, topics: dict[str, str]) -> dict[str, object]:
    code = snippet.replace("localhost:9092", kafka.bootstrap)
    for name, topic in topics.items():
        code = code.replace(f'"{name}"', f'"{topic}"')
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_snippets_of_the_page_run_and_write_what_they_say(
    kafka: RealKafka, consume: Callable[..., Consumed], capsys: pytest.CaptureFixture[str]
):
    topics = {name: kafka.unique_topic(f"docs-{name}") for name in TOPICS}
    found = [run(snippet, kafka, topics) for snippet in SNIPPETS]
    assert capsys.readouterr().out == "0 0\n"
    assert consume(topics["events"]).values == [b"value", b"1", b"2"]
    assert consume(topics["temperatures"]).values == [
        struct.pack(">d", celsius) for celsius in (20.5, 21.0, 21.5)
    ]
    assert consume(topics["credits"], isolation="read_committed").values == [b"10"]
    (writer_class,) = [names["ToKafka"] for names in found if "ToKafka" in names]
    writer = writer_class()  # type: ignore[operator]
    assert writer.open(0, 0)
    writer.process({"value": "row"})
    writer.close(None)
    assert consume(topics["events"]).values[-1] == b"row"
    (interceptor,) = [names["CountRows"] for names in found if "CountRows" in names]
    assert interceptor().on_send_columns.__name__ == "on_send_columns"  # type: ignore[operator]
