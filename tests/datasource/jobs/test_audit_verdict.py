"""Counts and verdicts of any log, in any pieces: without a network, by Hypothesis."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink import AuditVerdict
from spark_kafka_sink.admin.partition_count import RangeCount
from spark_kafka_sink.base.errors import ConfigError, ErrorCode
from spark_kafka_sink.datasource.report.audit_verdict import verdict_of
from spark_kafka_sink.datasource.report.claims import Claims, PartitionClaim, claims_of
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.records.record_batch import parse_header
from spark_kafka_sink.records.single_record import batch_of
from tests.datasource.jobs.audited_writes import reported

TP = TopicPartition("orders", 0)
#: Producers of the write are 1 to 3; 4 and 5 are others'.
OURS = frozenset((producer, 0) for producer in (1, 2, 3))
#: The batches of a log: producer and rows.
LOGS = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), min_size=1, max_size=30)
SETTINGS = {"cleanup.policy": "delete", "compression.type": "producer"}


def log_of(layout: list[tuple[int, int]]) -> list[bytes]:
    """The bytes of each batch, at its offset and with its producer's next sequence."""
    sequences = dict.fromkeys(range(6), 0)
    offset, found = 0, []
    for producer, rows in layout:
        records = [(None, b"%d" % (sequences[producer] + row)) for row in range(rows)]
        data = batch_of(records, 1_000, ProducerIdAndEpoch(producer, 0), sequences[producer])
        found.append(at(b"".join(data), offset))
        sequences[producer] += rows
        offset += rows
    return found


def at(data: bytes, offset: int) -> bytes:
    return offset.to_bytes(8) + data[8:]


def claim_on(log: list[bytes]) -> PartitionClaim | None:
    """What tasks know: rows, checksum, the first and the last offset."""
    headers = [parse_header(data) for data in log]
    ours = [one for one in headers if (one.producer_id, one.producer_epoch) in OURS]
    if not ours:
        return None
    return PartitionClaim(
        TP,
        min(one.base_offset for one in ours),
        max(one.base_offset + one.last_offset_delta for one in ours),
        sum(one.record_count for one in ours),
        sum(one.checksum for one in reversed(ours)) % 2**64,
    )


def of_ours(data: bytes) -> bool:
    header = parse_header(data)
    return (header.producer_id, header.producer_epoch) in OURS


def sequences(log: list[bytes]) -> list[tuple[int, int, int]]:
    """Producer, sequence and rows of each batch of ours."""
    headers = [parse_header(data) for data in log if of_ours(data)]
    return sorted((one.producer_id, one.base_sequence, one.record_count) for one in headers)


def claims(claim: PartitionClaim) -> Claims:
    rows = claim.rows or 0
    return Claims(
        "id", WriteOutcome.COMMITTED, True, None, rows, (claim,), OURS, 0, 0, {}, {}, None
    )  # fmt: skip


def counted(claim: PartitionClaim, log: list[bytes], limit: int) -> RangeCount:
    """Fetched in pieces of about ``limit`` bytes, whose last batch is cut off."""
    found = RangeCount(TP, claim.first, claim.last, OURS, from_zero=True)
    headers = [parse_header(data) for data in log]
    while not found.is_done:
        rest = [
            data
            for data, one in zip(log, headers, strict=True)
            if one.base_offset + one.last_offset_delta >= found.at
        ]
        size = max(limit, len(rest[0]) if rest else 0)
        if not found.take(
            FetchedPartition(ErrorCode.NONE, found.at, memoryview(b"".join(rest)[:size]))
        ):
            break
    return found


@given(LOGS, st.integers(1, 2_000))
def test_any_log_in_any_pieces_is_complete(layout: list[tuple[int, int]], limit: int) -> None:
    log = log_of(layout)
    claim = claim_on(log)
    if claim is not None:
        found = counted(claim, log, limit)
        assert verdict_of(claims(claim), claim, found, SETTINGS) == (AuditVerdict.COMPLETE, "")
        others = claim.last + 1 - claim.first - found.rows
        assert (found.other, found.gaps, found.hole_rows) == (others, 0, 0)


@given(LOGS, st.integers(1, 2_000), st.randoms(use_true_random=False))
def test_a_log_with_another_batch_in_a_place_of_ours_never_is(
    layout: list[tuple[int, int]], limit: int, chance: random.Random
) -> None:
    """One of our batches, or some, have been replaced: by nothing, by others' records, by other
    records of the same producer, or by another batch of the write with as many rows.
    """
    log, before = log_of(layout), log_of(layout)
    claim = claim_on(log)
    offsets = [0, *accumulate(rows for _, rows in layout)]
    ours = [n for n, (producer, _) in enumerate(layout) if producer <= 3]
    if claim is None:
        return
    for n in chance.sample(ours, chance.randint(1, len(ours))):
        producer, rows = layout[n]
        sequence = parse_header(log[n]).base_sequence
        foreign = batch_of([(b"x", b"y")] * rows, 1_000, ProducerIdAndEpoch(9, 0), sequence)
        other = batch_of([(b"x", b"y")] * rows, 1_000, ProducerIdAndEpoch(producer, 0), sequence)
        alike = [m for m in ours if m != n and layout[m] == layout[n]]
        copies = [at(before[m], offsets[n]) for m in alike]
        log[n] = chance.choice(
            [b"", at(b"".join(foreign), offsets[n]), at(b"".join(other), offsets[n]), *copies]
        )
    changed = [data for data in log if data]
    found = counted(claim, changed, limit)
    if not found.is_done:
        found.log_end, found.problem = found.at, "the log ends"
    verdict, _ = verdict_of(claims(claim), claim, found, SETTINGS)
    # Without checksums only other records of the same producer are not found.
    found.log_append_time = True
    by_count, _ = verdict_of(claims(claim), claim, found, SETTINGS)
    counted_out = sum(parse_header(one).record_count for one in changed if of_ours(one))
    if by_count is AuditVerdict.COUNTED:
        assert counted_out == claim.rows
        places = [sequences(data) for data in (before, changed)]
        assert places[0] == places[1]
    same = [data[17:] for data in log] == [data[17:] for data in before]
    assert (verdict is AuditVerdict.COMPLETE) is same


def test_two_batches_in_the_wrong_order_are_not_complete() -> None:
    """Their rows and their checksums are those of the claim. No broker stores them so."""
    log = log_of([(1, 2), (1, 2)])
    claim = claim_on(log)
    assert claim is not None
    found = counted(claim, [at(log[1], 0), at(log[0], 2)], 1_000)
    assert (found.rows, found.checksum % 2**64) == (claim.rows, claim.checksum)
    assert verdict_of(claims(claim), claim, found, SETTINGS)[0] is AuditVerdict.SURPLUS


def test_retention_while_a_range_is_read_is_no_loss() -> None:
    """The log begins later now, after a batch that was read and two that were not."""
    log = log_of([(1, 2), (1, 3), (2, 1), (1, 2), (2, 2)])
    claim = claim_on(log)
    assert claim is not None
    found = RangeCount(TP, claim.first, claim.last, OURS, from_zero=True)
    assert found.take(FetchedPartition(ErrorCode.NONE, 0, memoryview(log[0])))
    found.skip_to(6)
    assert found.take(FetchedPartition(ErrorCode.NONE, 6, memoryview(b"".join(log[3:]))))
    assert (found.rows, found.deleted, found.hole_rows) == (6, 4, 0)
    verdict, _ = verdict_of(claims(claim), claim, found, SETTINGS)
    assert verdict is AuditVerdict.DELETED


@pytest.mark.parametrize(
    "edit",
    [
        lambda report: report["partitions"][0].update(firstOffset=9, lastOffset=3),
        lambda report: report["partitions"].append(report["partitions"][0]),
        lambda report: report["audit"]["rows"].append(1),
        lambda report: report["audit"].update(producers=["7"]),
        lambda report: report["audit"].update(checksums=["no number"]),
        lambda report: report.update(outcome="fine"),
        lambda report: report.update(rows=-1),
        lambda report: report.pop("partitions"),
    ],
)
def test_a_report_with_an_impossible_part_is_refused(
    edit: Callable[[dict[str, Any]], object],
) -> None:
    produced = ProduceReport(
        rows=4, offsets={TP: (3, 9)}, by_partition={TP: (4, 90, 7)}, producer_ids={(7, 0)}
    )
    report = json.loads(reported(produced).json())
    assert claims_of(report).rows == 4
    edit(report)
    with pytest.raises(ConfigError, match="this is not a report of a write, or a part of it"):
        claims_of(report)
