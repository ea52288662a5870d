"""Nothing of a row that can't be sent leaves but in its letter, unless it is asked for."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.real_kafka import consume_topic
from tests.security.canaries import files_below, new_canary, search
from tests.security.debug_job import run_at_debug

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(400)]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(canaries: dict[str, str]) -> pa.Table:
    """A good one, and one for each reason; in each the canaries are key, value and header."""
    header = {"key": canaries["header key"], "value": canaries["header"].encode()}
    value = canaries["value"].encode()
    return pa.table({
        "key": pa.array([canaries["key"]] * 6),
        "value": pa.array([value] * 5 + [value * 400], pa.binary()),
        "partition": pa.array([0, -7, 99, 0, 0, 0], pa.int32()),
        "timestamp": pa.array([None, None, None, -1, None, None], pa.int64()),
        "headers": pa.array([[header]] * 4 + [[None, header]] + [[header]], HEADERS),
    })  # fmt: skip


def test_nothing_of_a_row_is_shown_unless_asked_for(kafka, tmp_path):
    canaries = {name: new_canary() for name in ("key", "value", "header", "header key")}
    topic, queue = kafka.unique_topic("rows"), f"dlq.{uuid.uuid4().hex}"
    small = kafka.unique_topic("dlq", configs={"max.message.bytes": "700"})
    pq.write_table(rows(canaries), tmp_path / "rows.parquet")
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "kafka.max.request.size": "8000",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
        "errors.log.enable": "true",
    }
    writes = [
        options | {"deliveryGuarantee": guarantee} | more
        for guarantee in ("at-least-once", "exactly-once")
        for more in (
            {}, {"errors.max.records": "1"}, {"errors.max.fraction": "0.5"},
            {"errors.deadletterqueue.topic.name": small}, {"errors.tolerance": "none"},
        )
    ]  # fmt: skip

    def run(writes: list[dict[str, str]], out: Path) -> list[str]:
        out.mkdir()
        places = {"spark.eventLog.dir": out.as_uri(), "spark.local.dir": str(out)}
        spec = {
            "out": str(out),
            "conf": {"spark.ui.enabled": "false"} | places,
            "rows": str(tmp_path / "rows.parquet"),
            "writes": writes,
        }
        found: list[str] = run_at_debug("tests.security.letters_job", spec, out)
        return found

    outcomes = run(writes, tmp_path / "out")
    for of_a_guarantee in (outcomes[:5], outcomes[5:]):
        wanted = ["", "KP0233", "KP0233", "KP0234", "KP0"]
        assert of_a_guarantee[0] == ""
        assert all(one in text for one, text in zip(wanted, of_a_guarantee, strict=True))
    letters = consume_topic(kafka.bootstrap, queue)
    assert any(canaries["value"].encode() in value for value in letters.values)
    assert search(files_below(tmp_path / "out", "out"), canaries) == set()
    # The search finds what is shown when it is asked for.
    run([options | {"errors.log.include.messages": "true"}], tmp_path / "shown")
    hits = search(files_below(tmp_path / "shown", "shown"), canaries)
    assert {hit.secret for hit in hits} == {"key", "value"}
