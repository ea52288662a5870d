"""A reader that was written from the protocol's page reads what the package writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import CommitLogError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_log.log_parts import cut, documents
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Done, Part, Payload
from spark_kafka_sink.transactions.lease import lease_ms, margin_ms
from tests.real_kafka import RealKafka, consume_topic
from tests.transactions.second_reader import (
    STATE_FIELDS,
    InvalidRecordError,
    ReadPayload,
    ReadState,
    ReadTransaction,
    partition_of,
    read_state,
)
from tests.transactions.test_commit_state import STATES

KEYS = ("orders-sink", "kprod~daily", "p~k", "p~kk", "p~kkk")
PAGE = Path("docs/design/commit-protocol.md")
WHOLE = CommitState(
    generation=7,
    run_id="run",
    query_id="query",
    last_done=41,
    superseded=("older",),
    decision=Decision(
        42,
        (PreparedTransaction("p~run~g7.w~0", 4711, 12, 2),),
        (Payload(3, 30, "topic"),),
        "ab" * 16,
    ),
    lost=("p~run~g7.w~0",),
    done=(Done(41, (Payload(1, 10, "", 1),), "cd" * 16),),
    take_over=(6, 7),
)
IN_A_BLOCK = CommitState(generation=7, run_id="run", last_done=41).with_part(
    42, "token", Part((PreparedTransaction("p~run~g7.w~0", 1, 2, 2),), Payload(1, 2, "t"), "first")
)


def records_of(state: CommitState, limit: int) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for name, document in documents(b"p", state.encode(), state.encode_parts()).items():
        found |= cut(name, document, 5, limit)
    return found


def same_transactions(
    found: tuple[ReadTransaction, ...], written: tuple[PreparedTransaction, ...]
) -> bool:
    return set(found) == {
        ReadTransaction(t.transactional_id, t.producer_id, t.producer_epoch, t.transaction_version)
        for t in written
    }


def payloads(written: tuple[Payload, ...]) -> tuple[ReadPayload, ...]:
    return tuple(ReadPayload(one.rows, one.bytes, one.topic, one.letters) for one in written)


def assert_same(found: ReadState | None, state: CommitState) -> None:
    assert found is not None
    assert found.phase.lower() == state.phase.value
    assert (found.generation, found.owner, found.query) == (
        state.generation,
        state.run_id,
        state.query_id,
    )
    assert (found.last_done, found.take_over) == (state.last_done, state.take_over)
    assert found.done == {one.number: payloads(one.payloads) for one in state.done}
    assert (found.superseded, found.lost) == (state.superseded, state.lost)
    decision = state.decision
    digests = {one.number: one.digest for one in (*state.done, decision) if one and one.digest}
    assert found.digests == digests
    assert found.decided == (decision and decision.number)
    assert found.payloads == (payloads(decision.payloads) if decision else ())
    assert same_transactions(found.transactions, decision.transactions if decision else ())
    assert [(name, payload) for name, payload, _ in found.parts] == [
        (part.name, *payloads((part.payload,))) for part in state.parts
    ]
    for (_, _, transactions), part in zip(found.parts, state.parts, strict=True):
        assert same_transactions(transactions, part.transactions)
    assert sorted(found.unknown) == [name for name, _ in state.other]


@given(STATES, st.sampled_from([40, 300, 100_000]))
def test_the_second_reader_reads_every_state(state: CommitState, limit: int) -> None:
    assert_same(read_state("p", records_of(state, limit)), state)


def test_leftovers_are_ignored() -> None:
    records = records_of(IN_A_BLOCK, 100_000)
    leftover = records_of(IN_A_BLOCK.without_parts().with_part(42, "other", IN_A_BLOCK.parts[0]), 9)
    records[b"p#w1"] = records_of(
        IN_A_BLOCK.without_parts().with_part(42, "other", IN_A_BLOCK.parts[0]), 100_000
    )[b"p#w0"]
    records |= {name: piece for name, piece in leftover.items() if name not in records}
    assert_same(read_state("p", records), IN_A_BLOCK)


@pytest.mark.parametrize(
    ("written", "changed"),
    [
        (b'"generation":7', b'"generation":7.0'),
        (b'"generation":7', b'"generation":true'),
        (b'"format":1', b'"format":3'),
        (b'"p~run~g7.w~"', b'"q~run~g7.w~"'),
        (b'"runId":"run"', b'"runId":"%s"' % (b"r" * 201)),
        (b'"runId":"run"', b'"runId":"run\\n"'),
        (b'"runId":"run"', b'"runId":1'),
    ],
)
def test_what_the_page_calls_invalid_is_refused(written: bytes, changed: bytes) -> None:
    records = records_of(WHOLE, 100_000)
    assert written in records[b"p"]
    records[b"p"] = records[b"p"].replace(written, changed)
    with pytest.raises(InvalidRecordError):
        read_state("p", records)
    with pytest.raises(CommitLogError):
        CommitState.decode("p", records[b"p"])


def test_a_missing_piece_is_refused() -> None:
    records = records_of(WHOLE, 40)
    del records[b"p#3"]
    with pytest.raises(InvalidRecordError, match="piece 3"):
        read_state("p", records)


def test_the_page_names_every_field() -> None:
    page = PAGE.read_text()
    table = page[page.index("## The state") : page.index("A payload is")]
    named = {
        n
        for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
        for n in re.findall(r"`(\w+)`", row)
    }
    assert named == STATE_FIELDS
    written = json.loads(WHOLE.encode()).keys() | json.loads(IN_A_BLOCK.encode()).keys()
    assert written == STATE_FIELDS


def test_the_numbers_of_the_page_are_the_packages() -> None:
    """The column of defaults, for a time-out of 15 minutes."""
    timeout = 900_000
    rows = dict(
        re.findall(r"^\| ([\w -]+?) \| .* \| ([\d.]+) s \|$", PAGE.read_text(), re.MULTILINE)
    )
    margin = margin_ms(timeout)
    assert {name: round(float(value) * 1000) for name, value in rows.items()} == {
        "margin": margin,
        "lease": lease_ms(timeout),
        "decide": timeout - margin,
        "time for the decision": margin // 2,
        "commit": timeout - margin // 2,
        "commit without a further check of the ages": margin // 8,
        "undo because of age": timeout - margin // 4,
    }


@pytest.mark.broker
@pytest.mark.parametrize("partitions", [16, 3])
def test_the_second_reader_finds_a_key_on_a_real_broker(
    kafka: RealKafka, client: TransactionClient, partitions: int
) -> None:
    """Another client's consumer, and the partition by the page's formula."""
    topic = kafka.unique_topic("commits", partitions, {"cleanup.policy": "compact"})
    written = {key: CommitState(generation=n + 1, run_id=f"run{n}") for n, key in enumerate(KEYS)}
    log = CommitLog(client, topic)
    for key, state in written.items():
        log.open(key, client.deadline()).write(state, client.deadline())
    found = consume_topic(kafka.bootstrap, topic, isolation="read_committed")
    by_partition: dict[int, dict[bytes, bytes]] = {}
    for partition, name, value in zip(found.partitions, found.keys, found.values, strict=True):
        by_partition.setdefault(partition, {})[name or b""] = value or b""
    for key, state in written.items():
        assert_same(read_state(key, by_partition[partition_of(key, partitions)]), state)
