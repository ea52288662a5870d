"""``audit``: compares the report of a write with the rows in Kafka.

An audit runs after a write, never in a commit, and changes nothing. This module chooses the offset
ranges that are read in each topic. ``admin/partition_count.py`` counts the rows of a range, and
``audit_verdict.py`` compares the counts with the report.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.existing_topic import existing_to_read
from spark_kafka_sink.admin.partition_count import TIME_IS_OVER, RangeCount, count_ranges
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    AuthorizationError,
    KafkaTimeoutError,
    RefusedError,
)
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.report.audit_verdict import (
    AuditVerdict,
    PartitionAudit,
    by_compaction,
    explained_gaps,
    partition_audit,
    sampled,
    verdict_of,
)
from spark_kafka_sink.datasource.report.claims import Claims, PartitionClaim, claims_of
from spark_kafka_sink.datasource.report.write_report import WriteReport
from spark_kafka_sink.network.client.client_factory import impatient
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.log_requests import OffsetSpec

#: The topic's configs that may explain missing rows or other bytes.
_SETTINGS: Final = (
    "cleanup.policy", "compression.type", "message.timestamp.type", "retention.bytes",
    "retention.ms",
)  # fmt: skip
#: The number of places in the middle of a range that a sample reads.
_IN_THE_MIDDLE: Final = 2
#: The least number of offsets before and after a range that are searched for rows without a known
#: offset.
_NEAR: Final = 100_000

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of an audit: a comparison of a write's report with the rows in Kafka.

    - ``claimed`` is the number of rows in the report, dead letters included. It is 0 if the write
      has failed, or has added no row.
    - ``found`` is the number of rows that the audit found in the topics, dead letters included.
      With ``sample``, only the rows in the parts that were read are counted.
    - ``dead_letters`` is the number of dead letters among the found rows.
    - ``unlisted`` is the number of rows in partitions that the report does not list.
    - ``partitions`` are the audits of the partitions.
    """

    report_id: str
    outcome: str
    sample: bool
    claimed: int
    found: int
    dead_letters: int
    unlisted: int
    partitions: tuple[PartitionAudit, ...]

    @property
    def verdict(self) -> AuditVerdict:
        """The verdict on the whole write: the worst verdict of all partitions. If the report counts
        rows in partitions that it does not list, the verdict is UNCLEAR or worse.
        """
        verdicts = [one.verdict for one in self.partitions]
        if self.unlisted:
            verdicts.append(AuditVerdict.UNCLEAR)
        return min(verdicts, key=lambda one: one.severity, default=AuditVerdict.COMPLETE)

    @property
    def complete(self) -> bool:
        """Whether the audit has read all rows that the report claims, and found them in Kafka.
        False for a sample.
        """
        return self.verdict in (AuditVerdict.COMPLETE, AuditVerdict.COUNTED)

    def __str__(self) -> str:
        count = len(self.partitions)
        of = f"{self.found:,} of {self.claimed:,} in {count} partition{'s' * (count != 1)}"
        read = " (a sample was read)" if self.sample else ""
        letters = f", {self.dead_letters:,} of them dead letters" if self.dead_letters else ""
        return f"{of.replace(',', ' ')}{letters}{read}: {self.verdict}"


def audit(
    report: WriteReport | Mapping[str, object] | str,
    *,
    sample: bool = False,
    seed: int = 0,
    timeout_s: float = 30.0,
    within_s: float | None = None,
    **options: str | float | bool,
) -> AuditResult:
    """Reads the topics of a write, and compares them with the write's report. Changes nothing.

        result = audit(last_report(spark), **{"kafka.bootstrap.servers": "host:9092"})
        assert result.complete, result

    - ``report`` is a report or its JSON.
    - ``sample``: if it is true, the audit reads only four places of each partition: the beginning
      and the end of the write's rows, and two places between them, which ``seed`` determines.
    - ``timeout_s`` is the time limit in seconds of each request, and of each wait for an open
      transaction.
    - ``within_s`` is the time limit in seconds of the audit. Partitions that were not read in this
      time are UNREAD. With None, there is no limit.
    - ``options`` are the connection options of the write.

    In each partition, the audit reads from the report's first offset to the report's last offset.
    It counts the committed records of the report's producers, and compares the checksums of their
    record batches with the report. The audit runs in the calling process, without Spark.

    Raises ConfigError if ``report`` is not a report, RefusedError for a report of another cluster,
    and KafkaTimeoutError if no broker responds.
    """
    claims = claims_of(report)
    config = parse_sink_config(options).producer
    limit_ms = int(timeout_s * 1000)
    config = replace(config, max_block_ms=limit_ms, delivery_timeout_ms=limit_ms)
    with AdminClient(impatient(config)) as client:
        until_ms = NEVER if within_s is None else client.clock.now_ms() + int(within_s * 1000)
        return audit_over(client, claims, seed if sample else None, until_ms=until_ms)


def audit_over(
    client: AdminClient,
    claims: Claims,
    seed: int | None,
    *,
    until_ms: int = NEVER,
    progress: Progress | None = None,
) -> AuditResult:
    """Runs an audit over the connections of ``client``.

    - ``seed``: with None, the audit reads all offsets. With a number, it reads only a sample, which
      the number determines.
    - ``until_ms`` is the time when the audit ends, by the clock of ``client``.
    - ``progress`` is called for each topic, with two numbers: the offsets that were read so far,
      and all offsets to read.
    """
    here = client.describe_topics((), allow_auto_topic_creation=False).cluster_id
    if None not in (claims.cluster_id, here) and claims.cluster_id != here:
        raise RefusedError(
            f"the report is of the cluster {claims.cluster_id}, and this is the cluster {here}",
            hint="give the addresses of the write",
            kind=Kind.OTHER_CLUSTER,
        )
    by_topic: dict[str, list[PartitionClaim]] = {}
    for claim in claims.partitions:
        by_topic.setdefault(claim.tp.topic, []).append(claim)
    audits: list[PartitionAudit] = []
    for topic, of_topic in by_topic.items():
        reading = _Topic(client, claims, topic, of_topic, seed, until_ms, progress)
        audits += reading.audited()
    return _result(claims, audits, sample=seed is not None)


def _result(claims: Claims, audits: list[PartitionAudit], *, sample: bool) -> AuditResult:
    found = sum(one.found for one in audits)
    if claims.undecided and not found:
        why = f"the write is '{claims.outcome}': it was not committed, or not yet"
        audits = [
            replace(one, verdict=AuditVerdict.NOT_COMMITTED, reason=why)
            if one.verdict is AuditVerdict.MISSING
            else one
            for one in audits
        ]
    letters = [one.found for one in audits if one.topic == claims.dead_letter_topic]
    return AuditResult(
        claims.report_id,
        str(claims.outcome),
        sample,
        0 if claims.of_nothing else claims.rows,
        found,
        sum(letters),
        claims.unlisted,
        tuple(audits),
    )


@dataclass(frozen=True, slots=True)
class _Topic:
    """The audit of one topic."""

    client: AdminClient
    claims: Claims
    topic: str
    of_topic: Sequence[PartitionClaim]
    seed: int | None
    until_ms: int
    progress: Progress | None

    def audited(self) -> list[PartitionAudit]:
        if self._is_over():
            return self._all(AuditVerdict.UNREAD, TIME_IS_OVER)
        try:
            left_ms = max(0, self._deadline() - self.client.clock.now_ms())
            cluster = existing_to_read(self.client, self.topic, left_ms)
            problem = self._not_the_same(cluster)
            if problem is not None:
                return self._all(*problem)
            return self._read(len(cluster.topics[self.topic]))
        except AuthorizationError as error:
            return self._all(AuditVerdict.UNREAD, f"{error.message}: {error.hint}")
        except KafkaTimeoutError as error:
            if self._is_over():
                return self._all(AuditVerdict.UNREAD, TIME_IS_OVER)
            if error.kind != Kind.TOPIC_NOT_PRESENT:
                raise
            return self._all(
                AuditVerdict.GONE, "there is no such topic, or no right to DESCRIBE it"
            )

    def _is_over(self) -> bool:
        return self.client.clock.now_ms() >= self.until_ms

    def _all(self, verdict: AuditVerdict, reason: str) -> list[PartitionAudit]:
        return [partition_audit(one, None, verdict, reason) for one in self.of_topic]

    def _not_the_same(self, cluster: Cluster) -> tuple[AuditVerdict, str] | None:
        was, now = self.claims.topic_ids.get(self.topic), cluster.topic_id(self.topic)
        if None in (was, now) or was == now:
            return None
        return (
            AuditVerdict.RECREATED,
            f"the topic was {was}, and is {now}: it was created again since",
        )

    def _read(self, partitions: int) -> list[PartitionAudit]:
        there = [one for one in self.of_topic if one.tp.partition < partitions]
        gone = [one for one in self.of_topic if one.tp.partition >= partitions]
        why = f"the topic has {partitions} partitions"
        missing = [partition_audit(one, None, AuditVerdict.GONE, why) for one in gone]
        if self.seed is None or self.claims.of_nothing:
            return self._whole(there, missing)
        return self._sample(there, self.seed) + missing

    def _count(self, ranges: Sequence[RangeCount]) -> None:
        count_ranges(self.client, ranges, until_ms=self.until_ms, on_progress=self.progress)

    def _whole(
        self, there: Sequence[PartitionClaim], gone: list[PartitionAudit]
    ) -> list[PartitionAudit]:
        producers = self.claims.producers
        # With exactly-once a producer's epoch is one transaction.
        from_zero = self.claims.exactly_once and producers is not None
        counts = [
            RangeCount(one.tp, one.first, one.last, producers, from_zero=from_zero) for one in there
        ]
        self._count(counts)
        if self.claims.rows_without_offset and not self.claims.of_nothing:
            counts = self._with_neighbours(there, counts)
        known = self._settings()
        audits = [
            partition_audit(claim, found, *verdict_of(self.claims, claim, found, known))
            for claim, found in zip(there, counts, strict=True)
        ]
        audits += gone
        by_partition = all(one.rows is not None for one in self.of_topic)
        return audits if by_partition or self.claims.of_nothing else self._judged(audits, known)

    def _deadline(self) -> int:
        return min(self.client.deadline(), self.until_ms)

    def _settings(self) -> Mapping[str, str | None]:
        """The configs of the topic. Empty if they can't be read in time."""
        try:
            found = self.client.topic_configs([self.topic], _SETTINGS, self._deadline())
        except KafkaTimeoutError:
            return {}
        return found.get(self.topic, {})

    def _with_neighbours(
        self, there: Sequence[PartitionClaim], counts: list[RangeCount]
    ) -> list[RangeCount]:
        """Counts the rows of some partitions a second time: if a partition has fewer rows than the
        report claims, the second count covers more offsets before and after the claimed range. Some
        rows of the write may be there, because their offsets are not known. Returns the last count
        of each partition.
        """
        reader = PartitionReader(self.client, "", "READ on the topic")
        longer: dict[int, RangeCount] = {}
        for i, (claim, found) in enumerate(zip(there, counts, strict=True)):
            if claim.rows is None or found.rows >= claim.rows or found.problem:
                continue
            near = max(_NEAR, claim.last - claim.first)
            try:
                after = reader.offset(claim.tp, OffsetSpec.LATEST, self._deadline())
            except KafkaTimeoutError as error:
                found.problem = TIME_IS_OVER if self._is_over() else error.message
                continue
            begin, last = max(claim.first - near, 0), min(claim.last + near, after - 1)
            from_zero = found.from_zero
            longer[i] = RangeCount(claim.tp, begin, last, found.producers, from_zero=from_zero)
        self._count(list(longer.values()))
        for i, found in longer.items():
            # An open transaction may follow, and the log may begin later.
            found.problem = "" if found.at > there[i].last else found.problem
            found.deleted = counts[i].deleted
        return [longer.get(i, one) for i, one in enumerate(counts)]

    def _judged(
        self, audits: list[PartitionAudit], settings: Mapping[str, str | None]
    ) -> list[PartitionAudit]:
        """Completes the verdicts on a topic's partitions. If the report has the number of rows of
        the topic, but not of each partition, compares the rows of the whole topic.
        """
        claimed = self.claims.topic_rows.get(self.topic)
        found = sum(one.found for one in audits)
        gaps = explained_gaps(sum(one.gaps for one in audits), settings)
        if any(one.verdict is not AuditVerdict.COUNTED for one in audits):
            verdict, why = AuditVerdict.UNCLEAR, "the report has no rows by partition"
        elif claimed is None or self.claims.partitions_left_out:
            verdict, why = AuditVerdict.UNCLEAR, "the report does not have the rows of this topic"
        elif 0 < claimed - found <= self.claims.rows_without_offset:
            verdict, why = (
                AuditVerdict.UNCLEAR,
                "batches were sent again, and their offset may be lost",
            )
        elif 0 < claimed - found <= gaps:
            verdict, why = by_compaction(gaps, settings)
        elif found < claimed:
            verdict, why = AuditVerdict.MISSING, f"{found} rows of {claimed} of the topic"
        elif found > claimed:
            why = f"{found} rows, where the report has {claimed}: rows of other writes are among"
            verdict, why = AuditVerdict.UNCLEAR, f"{why} them, and the report has no producers"
        else:
            verdict, why = AuditVerdict.COUNTED, "the report has no checksums"
        return [
            replace(one, verdict=verdict, reason=why)
            if one.verdict is AuditVerdict.COUNTED
            else one
            for one in audits
        ]

    def _sample(self, there: Sequence[PartitionClaim], seed: int) -> list[PartitionAudit]:
        windows = [self._windows(one, seed) for one in there]
        self._count([window for some in windows for window in some])
        settings = self._settings()
        audits = []
        for claim, some in zip(there, windows, strict=True):
            verdict = sampled(self.claims, claim, some, settings)
            total = RangeCount(claim.tp, claim.first, claim.last, None, fetches=0)
            for name in ("rows", "deleted", "gaps", "aborted_rows"):
                setattr(total, name, sum(getattr(one, name) for one in some))
            audits.append(partition_audit(claim, total, *verdict))
        return audits

    def _windows(self, claim: PartitionClaim, seed: int) -> list[RangeCount]:
        """Chooses the ranges of offsets that a sample reads in a partition: at the start, at two
        random places in the middle, and at the end. The ranges do not overlap. They are not read
        yet.
        """
        chosen = random.Random(f"{seed}/{claim.tp}")  # noqa: S311 - to be repeated
        middle = {chosen.randint(claim.first, claim.last) for _ in range(_IN_THE_MIDDLE)}
        starts = sorted({claim.first, claim.last} | middle)
        ends = [*(start - 1 for start in starts[1:]), claim.last]
        producers = self.claims.producers
        return [
            RangeCount(claim.tp, start, end, producers, fetches=1)
            for start, end in zip(starts, ends, strict=True)
        ]
