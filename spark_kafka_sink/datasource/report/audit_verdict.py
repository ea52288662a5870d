"""The verdict of an audit: compares the counted rows of a partition with the rows in the report.

The functions of this module are pure. ``admin/partition_count.py`` reads a partition and counts its
rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_kafka_sink.admin.partition_count import RangeCount
from spark_kafka_sink.datasource.report.claims import Claims, PartitionClaim

#: The sum of checksums is a number modulo 2^64.
_CHECKSUMS: Final = 2**64


class AuditVerdict(StrEnum):
    """The verdict of an audit on a partition: whether the rows in the report are in Kafka. The
    verdict on a whole write is the worst verdict of its partitions. The members are ordered from
    the worst to the best.
    """

    #: Rows are missing, and nothing explains it.
    MISSING = "missing"
    #: There are as many rows as claimed, but their bytes differ, and nothing explains it.
    CHANGED = "changed"
    #: There are more rows than claimed. After a failed write, this is the verdict for any row.
    SURPLUS = "surplus"
    #: A batch in the log does not match its own checksum.
    DAMAGED = "damaged"
    #: There is no such topic, or no such partition.
    GONE = "gone"
    #: The topic was deleted and created again.
    RECREATED = "recreated"
    #: The log begins after rows of the write: retention, or a call of DeleteRecords, removed them.
    DELETED = "deleted"
    #: Compaction has removed rows.
    COMPACTED = "compacted"
    #: There is no row, and the report does not show whether the write was committed.
    NOT_COMMITTED = "not committed"
    #: An open transaction, of any producer, hides rows from consumers with read_committed.
    OPEN = "open"
    #: The partition was not read: no permission, no leader, or no time.
    UNREAD = "unread"
    #: The partition was read, but the result has no clear explanation. Rows of other writes can't
    #: be distinguished from rows of this write, or settings of the topic can't be read.
    UNCLEAR = "unclear"
    #: Nothing is missing in the parts that were read.
    SAMPLED = "sampled"
    #: All rows are there. They were only counted, because checksums can't be compared.
    COUNTED = "counted"
    #: All rows are there, with the bytes that were written.
    COMPLETE = "complete"

    @property
    def severity(self) -> int:
        return _ORDER.index(self)


_ORDER: Final = tuple(AuditVerdict)
_SETTINGS_UNKNOWN: Final = (
    "and the topic's settings, which may explain it, can't be read (DESCRIBE_CONFIGS)"
)
_NOT_FOUND: Final = (
    "the offset of some rows is not known (rowsWithoutOffset), and they are not near the others"
)


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """The audit of one partition: a comparison of the report with the rows in the log, in the range
    of offsets from ``first_offset`` to ``last_offset``.

    - ``claimed`` is the number of the partition's rows in the report. It is None if the report does
      not have the number of rows of each partition.
    - ``found`` is the number of committed rows of the report's producers. With ``sample``, only the
      rows in the parts that were read are counted.
    - ``checksum`` is True if the number and the checksum of the rows are as in the report. It is
      False if one of them differs, and None if they were not compared.
    - ``deleted`` is the number of the range's offsets that are before the start of the log.
    - ``gaps`` is the number of offsets without a record.
    - ``aborted`` is the number of the producers' rows in aborted transactions.
    - ``reason`` is a sentence that explains the verdict, or empty.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    verdict: AuditVerdict
    claimed: int | None
    found: int
    checksum: bool | None = None
    deleted: int = 0
    gaps: int = 0
    aborted: int = 0
    reason: str = ""


def partition_audit(
    claim: PartitionClaim, found: RangeCount | None, verdict: AuditVerdict, reason: str
) -> PartitionAudit:
    """The audit of a partition with its verdict. ``found`` is None if nothing was read."""
    same = None
    whole = found is not None and found.fetches > 0 and found.at > claim.last
    if whole and claim.checksum is not None:
        assert found is not None
        same = found.rows == claim.rows and found.checksum % _CHECKSUMS == claim.checksum
    counts = (0, 0, 0, 0)
    if found is not None:
        counts = (found.rows, found.deleted, found.gaps, found.aborted_rows)
    return PartitionAudit(
        *claim.tp, claim.first, claim.last, verdict, claim.rows, counts[0], same, *counts[1:],
        reason,
    )  # fmt: skip


def verdict_of(
    claims: Claims, claim: PartitionClaim, found: RangeCount, settings: Mapping[str, str | None]
) -> tuple[AuditVerdict, str]:
    """The verdict on a partition, and the reason for the verdict. ``found`` is the result of
    reading the whole range of ``claim``, not a sample. ``settings`` are the topic's configs. They
    are empty if unknown.

    If the report does not have the number of rows of each partition, the verdict COUNTED is not
    final: the caller must then compare the rows of the whole topic.
    """
    if claims.of_nothing:
        return _of_nothing(claims, found)
    compacted = _compacted(settings)
    missing = 0 if claim.rows is None else claim.rows - found.rows
    known = _not_read(found)
    if known is None and claims.producers is not None:
        known = _not_in_sequence(claims, found, missing, settings)
    if known is not None:
        return known
    if missing > 0 or (claim.rows is None and (found.deleted or found.problem)):
        return _missing(claims, found, missing, settings)
    if missing < 0:
        return _surplus(claims, -missing)
    if claim.checksum is None:
        return AuditVerdict.COUNTED, "the report has no checksums"
    if found.checksum % _CHECKSUMS == claim.checksum:
        return AuditVerdict.COMPLETE, ""
    why = _rewritten(found, settings, compacted=compacted)
    if why:
        return AuditVerdict.COUNTED, why
    other = "the bytes are not those that were written"
    if not settings:
        return AuditVerdict.UNCLEAR, f"{other}, {_SETTINGS_UNKNOWN}"
    return AuditVerdict.CHANGED, f"{other}, and the topic's settings don't explain it"


def _compacted(settings: Mapping[str, str | None]) -> bool:
    return "compact" in (settings.get("cleanup.policy") or "")


def explained_gaps(gaps: int, settings: Mapping[str, str | None]) -> int:
    """Returns the number of records that compaction may have removed. ``gaps`` is the number of
    offsets without a record. If the topic is compacted, or if its configs are unknown, the result
    is ``gaps``. For any other topic, the result is 0.
    """
    return gaps if _compacted(settings) or not settings else 0


def _not_read(found: RangeCount) -> tuple[AuditVerdict, str] | None:
    """The verdict on a range that could not be read to its end. None if the range was read to its
    end, or if the log itself ends within the range.
    """
    if found.damaged_at >= 0:
        return AuditVerdict.DAMAGED, _damage(found)
    if found.problem and found.log_end < 0:
        return (AuditVerdict.OPEN if found.open_at >= 0 else AuditVerdict.UNREAD), found.problem
    return None


def _damage(found: RangeCount) -> str:
    return f"the batch at offset {found.damaged_at} can't be read: {found.damage}"


def _not_in_sequence(
    claims: Claims, found: RangeCount, missing: int, settings: Mapping[str, str | None]
) -> tuple[AuditVerdict, str] | None:
    """The verdict on a partition and its reason, in three cases:

    - Rows are missing, but the missing rows may be the report's rows with an unknown offset.
    - A batch is in the log twice.
    - The sequence numbers of the batches have a gap that compaction does not explain.

    In all other cases, the result is None.
    """
    if 0 < missing <= claims.rows_without_offset:
        return AuditVerdict.UNCLEAR, _NOT_FOUND
    if found.repeated_at >= 0:
        return AuditVerdict.SURPLUS, f"the batch at offset {found.repeated_at} was there before"
    if found.hole_rows > explained_gaps(found.gaps, settings):
        return AuditVerdict.MISSING, f"{found.hole_rows} rows before offset {found.hole}"
    return None


def _of_nothing(claims: Claims, found: RangeCount) -> tuple[AuditVerdict, str]:
    if (known := _not_read(found)) is not None:
        return known
    if not found.rows:
        return AuditVerdict.COMPLETE, f"the write is '{claims.outcome}': no row of it is visible"
    if claims.exactly_once and claims.producers is not None:
        return AuditVerdict.SURPLUS, f"the write is '{claims.outcome}', and rows of it are visible"
    if claims.exactly_once:
        return AuditVerdict.UNCLEAR, (
            f"the write is '{claims.outcome}', and the report has no producers: the rows may be of"
            " other writes"
        )
    return (
        AuditVerdict.UNCLEAR,
        f"the write is '{claims.outcome}': without exactly-once its rows may be visible",
    )


def _missing(
    claims: Claims, found: RangeCount, missing: int, settings: Mapping[str, str | None]
) -> tuple[AuditVerdict, str]:
    # Without producers the aborted rows may be of any application.
    if found.aborted_rows and claims.producers is not None:
        return (
            AuditVerdict.MISSING,
            f"{found.aborted_rows} rows are of transactions that were aborted",
        )
    gaps = explained_gaps(found.gaps, settings)
    explained = found.deleted + gaps
    if found.deleted and missing <= explained:
        times = ", ".join(
            f"{name}={settings[name]}"
            for name in ("retention.ms", "retention.bytes")
            if settings.get(name) not in (None, "-1")
        )
        return (
            AuditVerdict.DELETED,
            f"the log begins {found.deleted} offsets later now: "
            + (
                f"retention ({times}), or DeleteRecords"
                if times
                else "DeleteRecords"
                if settings
                else "retention, or DeleteRecords"
            ),
        )
    if gaps and missing <= explained:
        return by_compaction(gaps, settings)
    if found.problem:
        return AuditVerdict.MISSING, f"{found.problem}: records after it were lost"
    return AuditVerdict.MISSING, f"{found.gaps} offsets have no record" if found.gaps else ""


def _surplus(claims: Claims, more: int) -> tuple[AuditVerdict, str]:
    if claims.exactly_once:
        return AuditVerdict.SURPLUS, f"{more} rows more than brokers have acknowledged"
    why = "a failed attempt, or a concurrent write with the same options"
    return AuditVerdict.UNCLEAR, f"{more} rows more than claimed, of the same producers ({why})"


def by_compaction(gaps: int, settings: Mapping[str, str | None]) -> tuple[AuditVerdict, str]:
    """The verdict on a partition or a topic, and the reason for the verdict. Call this function
    only if compaction may have removed all missing rows. ``gaps`` is the number of offsets without
    a record. ``settings`` are the topic's configs:

    - If they are known, the topic is compacted, and the verdict is COMPACTED.
    - If they are unknown (empty), the verdict is UNCLEAR.
    """
    if not settings:
        return AuditVerdict.UNCLEAR, f"{gaps} offsets have no record, {_SETTINGS_UNKNOWN}"
    return AuditVerdict.COMPACTED, f"compaction has removed {gaps} offsets"


def _rewritten(found: RangeCount, settings: Mapping[str, str | None], *, compacted: bool) -> str:
    """The reason why the bytes in the log differ from the producers' bytes. Empty if no reason is
    found. For example, the topic may have another compression.type than the producers.
    """
    if found.log_append_time:
        return "brokers have set the times (message.timestamp.type=LogAppendTime)"
    codec = settings.get("compression.type")
    if codec not in (None, "producer"):
        name = "none" if codec == "uncompressed" else codec
        if {one.name.lower() for one in found.codecs} == {name}:
            return f"brokers have compressed the batches again (compression.type={codec})"
    if compacted:
        return "the topic is compacted, which rewrites batches (cleanup.policy)"
    return ""


def sampled(
    claims: Claims,
    claim: PartitionClaim,
    windows: list[RangeCount],
    settings: Mapping[str, str | None],
) -> tuple[AuditVerdict, str]:
    """The verdict on a partition of which only a sample was read, and the reason for the verdict.

    - ``windows`` are the ranges of offsets that were read, with their counts, in the order of
      offsets. The first window is at the start of the claimed range, and the last window is at its
      end.
    - ``settings`` are the topic's configs. They are empty if unknown.
    """
    for one in windows:
        if one.damaged_at >= 0:
            return AuditVerdict.DAMAGED, _damage(one)
        if one.problem and one.log_end >= 0:
            return AuditVerdict.MISSING, f"{one.problem}: records after it were lost"
        if one.problem:
            return (AuditVerdict.OPEN if one.open_at >= 0 else AuditVerdict.UNREAD), one.problem
        if one.aborted_rows and claims.producers is not None:
            return AuditVerdict.MISSING, f"{one.aborted_rows} rows are of aborted transactions"
    return _sampled_rows(claims, claim, windows, settings)


def _sampled_rows(
    claims: Claims,
    claim: PartitionClaim,
    windows: list[RangeCount],
    settings: Mapping[str, str | None],
) -> tuple[AuditVerdict, str]:
    begin, end = windows[0], windows[-1]
    if any(one.deleted for one in windows):
        return AuditVerdict.DELETED, f"the log begins after offset {claim.first} now"
    if claims.producers is None or claim.rows is None:
        return AuditVerdict.UNCLEAR, "the report has no producers, which a sample needs"
    gaps = sum(one.gaps for one in windows)
    if gaps and _compacted(settings):
        return AuditVerdict.COMPACTED, f"compaction has removed {gaps} offsets of the sample"
    if gaps and not settings:
        return (
            AuditVerdict.UNCLEAR,
            f"{gaps} offsets of the sample have no record, {_SETTINGS_UNKNOWN}",
        )
    repeated = next((one for one in windows if one.repeated_at >= 0), None)
    if repeated is not None:
        return AuditVerdict.SURPLUS, f"the batch at offset {repeated.repeated_at} was there before"
    if begin.first_batch != claim.first:
        return AuditVerdict.MISSING, f"no batch of this write is at offset {claim.first}"
    if end.last_row != claim.last:
        return AuditVerdict.MISSING, f"no batch of this write ends at offset {claim.last}"
    if gaps:
        return AuditVerdict.UNCLEAR, f"{gaps} offsets of the sample have no record: read all"
    hole = next((one for one in windows if one.hole_rows), None)
    if hole is not None:
        return AuditVerdict.MISSING, f"{hole.hole_rows} rows before offset {hole.hole}"
    # Offsets of others can be no more than the claimed rows leave room for.
    room = claim.last + 1 - claim.first - claim.rows + claims.rows_without_offset
    others = sum(one.other for one in windows)
    if others > room:
        found = f"{others} offsets of the sample are not of this write"
        return AuditVerdict.MISSING, f"{found}, and the range has room for {max(room, 0)}"
    return AuditVerdict.SAMPLED, ""
