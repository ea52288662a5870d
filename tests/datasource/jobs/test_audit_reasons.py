"""The reason that an audit gives for its verdict on counts: without a network."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink import AuditVerdict
from spark_kafka_sink.admin.partition_count import RangeCount
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.report.audit_verdict import sampled, verdict_of
from spark_kafka_sink.datasource.report.claims import Claims, PartitionClaim, claims_of
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.compression import CompressionType
from tests.datasource.jobs.audited_writes import reported

TP = TopicPartition("orders", 0)
OURS = frozenset({(7, 0)})
#: Ten rows at the offsets 100 to 109.
CLAIM = PartitionClaim(TP, 100, 109, 10, 5)
CLAIMS = Claims(
    "id", WriteOutcome.COMMITTED, True, None, 10, (CLAIM,), OURS, 0, 0, {}, {}, None
)  # fmt: skip
AT_LEAST_ONCE = replace(CLAIMS, exactly_once=False)
FAILED = replace(CLAIMS, outcome=WriteOutcome.FAILED)
DELETES = {"cleanup.policy": "delete", "compression.type": "producer"}
COMPACTS = DELETES | {"cleanup.policy": "compact"}


def counted(**counts: Any) -> RangeCount:
    """The whole range as the report has it, but for these counts."""
    return RangeCount(TP, 110, 109, OURS, **({"rows": 10, "checksum": 5} | counts))


def window(first: int, last: int, **counts: Any) -> RangeCount:
    """A part of a sample, each of whose offsets has a row of the write."""
    rows = {"rows": last + 1 - first, "first_batch": first, "last_row": last}
    return RangeCount(TP, last + 1, last, OURS, **(rows | counts))


@pytest.mark.parametrize(
    ("claims", "verdict", "reason"),
    [
        (CLAIMS, AuditVerdict.SURPLUS, "2 rows more than brokers have acknowledged"),
        (
            AT_LEAST_ONCE,
            AuditVerdict.UNCLEAR,
            (
                "2 rows more than claimed, of the same producers (a failed attempt, or a concurrent"
                " write with the same options)"
            ),
        ),
    ],
    ids=["exactly once", "at least once"],
)
def test_more_rows_than_claimed_are_wrong_only_with_exactly_once(
    claims: Claims, verdict: AuditVerdict, reason: str
) -> None:
    found = counted(rows=12, checksum=99)
    assert verdict_of(claims, CLAIM, found, DELETES) == (verdict, reason)


@pytest.mark.parametrize(
    ("claims", "counts", "verdict", "reason"),
    [
        (
            FAILED,
            {"damaged_at": 104, "damage": "a wrong checksum"},
            AuditVerdict.DAMAGED,
            "the batch at offset 104 can't be read: a wrong checksum",
        ),
        (
            FAILED,
            {},
            AuditVerdict.SURPLUS,
            "the write is 'failed', and rows of it are visible",
        ),
        (
            replace(FAILED, exactly_once=False),
            {},
            AuditVerdict.UNCLEAR,
            "the write is 'failed': without exactly-once its rows may be visible",
        ),
        (
            FAILED,
            {"rows": 0, "checksum": 0},
            AuditVerdict.COMPLETE,
            "the write is 'failed': no row of it is visible",
        ),
    ],
    ids=["damaged", "exactly once", "at least once", "no row"],
)
def test_rows_of_a_failed_write_are_judged_by_its_guarantee(
    claims: Claims, counts: dict[str, Any], verdict: AuditVerdict, reason: str
) -> None:
    assert verdict_of(claims, CLAIM, counted(**counts), DELETES) == (verdict, reason)


@pytest.mark.parametrize(
    ("counts", "settings", "verdict", "reason"),
    [
        (
            {"log_append_time": True},
            DELETES,
            AuditVerdict.COUNTED,
            "brokers have set the times (message.timestamp.type=LogAppendTime)",
        ),
        (
            {"codecs": {CompressionType.ZSTD}},
            DELETES | {"compression.type": "zstd"},
            AuditVerdict.COUNTED,
            "brokers have compressed the batches again (compression.type=zstd)",
        ),
        (
            {"codecs": {CompressionType.NONE}},
            DELETES | {"compression.type": "uncompressed"},
            AuditVerdict.COUNTED,
            "brokers have compressed the batches again (compression.type=uncompressed)",
        ),
        (
            {"codecs": {CompressionType.ZSTD, CompressionType.GZIP}},
            DELETES | {"compression.type": "zstd"},
            AuditVerdict.CHANGED,
            "the bytes are not those that were written, and the topic's settings don't explain it",
        ),
        (
            {},
            COMPACTS,
            AuditVerdict.COUNTED,
            "the topic is compacted, which rewrites batches (cleanup.policy)",
        ),
        (
            {},
            {},
            AuditVerdict.UNCLEAR,
            (
                "the bytes are not those that were written, and the topic's settings, which may"
                " explain it, can't be read (DESCRIBE_CONFIGS)"
            ),
        ),
    ],
    ids=["times", "compressed", "uncompressed", "another codec", "compacted", "unknown settings"],
)
def test_settings_of_the_topic_may_explain_other_bytes(
    counts: dict[str, Any], settings: dict[str, str], verdict: AuditVerdict, reason: str
) -> None:
    found = counted(checksum=6, **counts)
    assert verdict_of(CLAIMS, CLAIM, found, settings) == (verdict, reason)


@pytest.mark.parametrize(
    ("counts", "verdict", "reason"),
    [
        (
            {"damaged_at": 104, "damage": "a wrong checksum"},
            AuditVerdict.DAMAGED,
            "the batch at offset 104 can't be read: a wrong checksum",
        ),
        (
            {"problem": "the log ends at offset 105", "log_end": 105},
            AuditVerdict.MISSING,
            "the log ends at offset 105: records after it were lost",
        ),
        (
            {"problem": "an open transaction hides offset 104", "open_at": 104},
            AuditVerdict.OPEN,
            "an open transaction hides offset 104",
        ),
        ({"problem": "no leader"}, AuditVerdict.UNREAD, "no leader"),
        (
            {"aborted_rows": 2},
            AuditVerdict.MISSING,
            "2 rows are of aborted transactions",
        ),
        ({"deleted": 3}, AuditVerdict.DELETED, "the log begins after offset 100 now"),
        (
            {"gaps": 2},
            AuditVerdict.UNCLEAR,
            "2 offsets of the sample have no record: read all",
        ),
        ({"hole": 104, "hole_rows": 2}, AuditVerdict.MISSING, "2 rows before offset 104"),
        (
            {"repeated_at": 104},
            AuditVerdict.SURPLUS,
            "the batch at offset 104 was there before",
        ),
        (
            {"other": 2},
            AuditVerdict.MISSING,
            "2 offsets of the sample are not of this write, and the range has room for 0",
        ),
        ({}, AuditVerdict.SAMPLED, ""),
    ],
    ids=lambda value: "-".join(value) or "all there" if isinstance(value, dict) else "",
)
def test_a_sample_is_judged_by_the_worst_of_its_parts(
    counts: dict[str, Any], verdict: AuditVerdict, reason: str
) -> None:
    windows = [window(100, 102), window(103, 105, **counts), window(106, 109)]
    assert sampled(CLAIMS, CLAIM, windows, DELETES) == (verdict, reason)


@pytest.mark.parametrize(
    ("begin", "end", "reason"),
    [
        ({"first_batch": 101}, {}, "no batch of this write is at offset 100"),
        ({}, {"last_row": 108}, "no batch of this write ends at offset 109"),
    ],
    ids=["begin", "end"],
)
def test_a_sample_needs_the_first_and_the_last_row(
    begin: dict[str, int], end: dict[str, int], reason: str
) -> None:
    windows = [window(100, 102, **begin), window(107, 109, **end)]
    assert sampled(CLAIMS, CLAIM, windows, DELETES) == (AuditVerdict.MISSING, reason)


def test_a_sample_of_a_compacted_topic_names_what_compaction_took() -> None:
    windows = [window(100, 102, gaps=1), window(107, 109, gaps=2)]
    assert sampled(CLAIMS, CLAIM, windows, COMPACTS) == (
        AuditVerdict.COMPACTED,
        "compaction has removed 3 offsets of the sample",
    )


@pytest.mark.parametrize(
    ("claims", "claim"),
    [(replace(CLAIMS, producers=None), CLAIM), (CLAIMS, replace(CLAIM, rows=None))],
    ids=["no producers", "no rows"],
)
def test_a_sample_needs_a_report_with_producers(claims: Claims, claim: PartitionClaim) -> None:
    windows = [window(100, 102), window(107, 109)]
    assert sampled(claims, claim, windows, DELETES) == (
        AuditVerdict.UNCLEAR,
        "the report has no producers, which a sample needs",
    )


# -- the report -----------------------------------------------------------------------------------


def report_json(*, outcome: WriteOutcome = WriteOutcome.COMMITTED) -> dict[str, Any]:
    produced = ProduceReport(
        rows=4, offsets={TP: (3, 9)}, by_partition={TP: (4, 90, 7)}, producer_ids={(7, 0)}
    )
    found = json.loads(reported(produced, outcome=outcome).json())
    assert isinstance(found, dict)
    return found


def test_a_line_of_json_claims_as_its_report_does() -> None:
    report = report_json()
    assert claims_of(json.dumps(report)) == claims_of(report)
    assert claims_of(report).partitions == (PartitionClaim(TP, 3, 9, 4, 7),)


def test_a_report_without_checksums_claims_rows_of_topics_only() -> None:
    """As of versions that had no field ``audit``; rows of retries may have no known offset."""
    report = report_json()
    del report["audit"]
    claims = claims_of(report | {"retries": 2})
    assert claims.partitions == (PartitionClaim(TP, 3, 9, None, None),)
    assert (claims.producers, claims.rows_without_offset) == (None, 4)
    assert (claims_of(report).rows_without_offset, claims.unlisted) == (0, 0)


def test_rows_of_a_topic_that_is_not_counted_are_not_unlisted() -> None:
    """Without rows by partition, nor by topic, nothing shows how many rows are elsewhere."""
    report = report_json()
    del report["audit"]
    report["topicCounts"] = []
    assert claims_of(report).unlisted == 0


def test_rows_of_partitions_that_are_not_listed_are_unlisted() -> None:
    """The listed rows are those of partitions, or of their topics if the report has only these."""
    claims = replace(CLAIMS, rows=15, topic_rows={"orders": 13, "letters": 2})
    assert claims.unlisted == 5
    by_topic = replace(claims, partitions=(replace(CLAIM, rows=None),))
    assert by_topic.unlisted == 2


def test_a_report_of_a_failed_write_has_no_unlisted_rows() -> None:
    report = report_json(outcome=WriteOutcome.FAILED)
    report["partitions"], report["audit"]["rows"], report["audit"]["checksums"] = [], [], []
    assert claims_of(report).unlisted == 0
    assert claims_of(report | {"outcome": "committed"}).unlisted == 4


def test_a_report_of_another_version_names_the_way_to_audit_it() -> None:
    with pytest.raises(ConfigError) as raised:
        claims_of(report_json() | {"reportVersion": 99})
    assert raised.value.message == "a report of version 99 can't be audited here"
    assert raised.value.hint == "install the version of spark-kafka-sink that has written it"


@pytest.mark.parametrize(
    "given",
    ["no JSON", "[]", 7, {"reportVersion": 1}, report_json() | {"topicCounts": {}}],
    ids=["a text", "a list", "a number", "a field", "topics that are no list"],
)
def test_what_is_no_report_is_refused_with_what_to_give(given: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        claims_of(given)
    assert raised.value.message == "this is not a report of a write, or a part of it is missing"
    assert raised.value.hint is not None
    assert raised.value.hint.startswith("give a line of reportPath, a record of reportTopic")
