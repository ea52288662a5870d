"""Logs that lack, double or change a batch of a write, in the simulated world: an audit never finds
them complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from crc32c import crc32c

from spark_kafka_sink import AuditVerdict
from spark_kafka_sink.admin.existing_topic import existing_to_read
from spark_kafka_sink.admin.partition_count import RangeCount, count_ranges
from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.datasource.report.audit import AuditResult, audit_over
from spark_kafka_sink.datasource.report.claims import Claims, PartitionClaim
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.single_record import batch_of
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.fake_cluster.batch_checks import Batch, read_batch
from tests.fakes.fake_cluster.partition_log import PartitionLog
from tests.simulation.scene import Scene, scene_of

TP = TopicPartition("orders", 0)
#: Producer, sequence and rows of each batch, in the order of the log; producer 9 is another's.
LAYOUT = ((9, 0, 2), (7, 0, 3), (8, 0, 4), (9, 2, 3), (7, 3, 2), (8, 4, 3), (7, 5, 3), (9, 5, 1))
OURS = (1, 2, 4, 5, 6)


def batch(producer: int, sequence: int, rows: int, text: bytes = b"v", epoch: int = 0) -> Batch:
    records = [(b"key", b"%s-%d" % (text, sequence + n)) for n in range(rows)]
    data = b"".join(batch_of(records, 1_000, ProducerIdAndEpoch(producer, epoch), sequence))
    return read_batch(data)


@pytest.fixture
def scene() -> Scene:
    found = scene_of(broker_configs={"cleanup.policy": "delete"})
    found.cluster.create_topic(TP.topic)
    for one in LAYOUT:
        found.cluster.logs[TP].append(batch(*one))
    for producer in (7, 8, 9):
        end(found.cluster.logs[TP], producer)
    return found


def end(log: PartitionLog, producer: int, epoch: int = 0, *, commit: bool = True) -> None:
    log.end_transaction(producer, epoch, commit=commit, coordinator_epoch=0, timestamp=1_000)


def claims_on(log: PartitionLog) -> Claims:
    ours = [log.batches[at] for at in OURS]
    rows = sum(one.count for one in ours)
    checksum = sum(one.crc for one in ours)
    claim = PartitionClaim(TP, ours[0].base_offset, ours[-1].last_offset, rows, checksum)
    return Claims(
        "id", WriteOutcome.COMMITTED, True, None, rows, (claim,), frozenset({(7, 0), (8, 0)}), 0, 0,
        {TP.topic: rows}, {}, None,
    )  # fmt: skip


def audited(scene: Scene, claims: Claims, seed: int | None = None) -> AuditResult:
    with scene.client(max_block_ms=3_000) as client:
        return audit_over(client, claims, seed)


def lost(log: PartitionLog, at: int) -> None:
    """A hole in the log."""
    del log.batches[at]


def overwritten(log: PartitionLog, at: int) -> None:
    """Another producer's records have the offsets."""
    log.batches[at] = moved(batch(9, 6, log.batches[at].count), log.batches[at])


def rewritten(log: PartitionLog, at: int) -> None:
    """Other values of the same producer, with the same sequence."""
    before = log.batches[at]
    found = batch(before.producer_id, before.base_sequence, before.count, b"other")
    log.batches[at] = moved(found, before)


def flipped(log: PartitionLog, at: int) -> None:
    """A bit of the last value, on the disk."""
    before = log.batches[at]
    data = before.data[:-2] + bytes([before.data[-2] ^ 1]) + before.data[-1:]
    log.batches[at] = replace(before, data=data)


def moved(found: Batch, to: Batch) -> Batch:
    return found.at(to.base_offset, to.leader_epoch)


def test_a_log_with_all_batches_is_complete(scene: Scene) -> None:
    claims = claims_on(scene.cluster.logs[TP])
    assert audited(scene, claims).verdict is AuditVerdict.COMPLETE
    assert {audited(scene, claims, seed).verdict for seed in range(20)} == {AuditVerdict.SAMPLED}


@pytest.mark.parametrize("at", OURS)
@pytest.mark.parametrize(
    ("lie", "verdict"),
    [
        (lost, AuditVerdict.MISSING),
        (overwritten, AuditVerdict.MISSING),
        (rewritten, AuditVerdict.CHANGED),
        (flipped, AuditVerdict.DAMAGED),
    ],
)
def test_one_batch_that_is_not_as_it_was_is_found(
    scene: Scene, at: int, lie: Callable[[PartitionLog, int], None], verdict: AuditVerdict
) -> None:
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    lie(log, at)
    result = audited(scene, claims)
    assert result.verdict is verdict, result
    assert not result.complete


def test_a_batch_that_is_there_twice_hides_no_other_one(scene: Scene) -> None:
    """Producer 7's first batch is there twice, and producer 8's last one, with as many rows, is
    gone: the count is right.
    """
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    log.batches[3] = moved(log.batches[1], log.batches[3])
    assert audited(scene, claims).verdict is AuditVerdict.SURPLUS
    overwritten(log, 5)
    found = audited(scene, claims)
    assert (found.claimed, found.found) == (15, 15)
    assert found.verdict is AuditVerdict.SURPLUS


@pytest.mark.parametrize("refilled", [False, True])
def test_a_log_that_was_cut_lacks_its_end(scene: Scene, refilled: bool) -> None:
    """An unclean election; with and without records of others in the place of ours."""
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    log.truncate(log.batches[5].base_offset)
    for producer in (7, 8, 9):
        end(log, producer)
    if refilled:
        for sequence in range(20):
            log.append(batch(33, sequence, 1))
        end(log, 33)
    (found,) = audited(scene, claims).partitions
    assert (found.verdict, found.found) == (AuditVerdict.MISSING, 9)
    assert (f"the log ends at offset {log.end}" in found.reason) is not refilled
    assert audited(scene, claims, 1).verdict is AuditVerdict.MISSING


def test_an_aborted_attempt_of_the_same_producer_is_not_counted(scene: Scene) -> None:
    """A worker's next attempt has the same producer id and the next epoch."""
    log = scene.cluster.logs[TP]
    log.append(batch(5, 0, 4, epoch=3))
    end(log, 5, 3, commit=False)
    log.append(batch(5, 0, 4, epoch=4))
    end(log, 5, 4)
    aborted, there = (one for one in log.batches if one.producer_id == 5 and not one.control)
    for one, verdict, counts in (
        (there, AuditVerdict.COMPLETE, (4, 0)),
        (aborted, AuditVerdict.MISSING, (0, 4)),
    ):
        claim = PartitionClaim(TP, log.start, there.last_offset, 4, one.crc)
        ours = frozenset({(5, one.producer_epoch)})
        claims = replace(claims_on(log), rows=4, partitions=(claim,), producers=ours)
        (found,) = audited(scene, claims).partitions
        assert (found.verdict, (found.found, found.aborted)) == (verdict, counts)


def test_rows_before_the_begin_of_the_log_explain_no_further_loss(scene: Scene) -> None:
    """Three of our rows were deleted. One more batch is gone: the sequences show it."""
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    log.start, log.batches = 9, log.batches[3:]
    assert audited(scene, claims).verdict is AuditVerdict.DELETED
    overwritten(log, 1)
    assert audited(scene, claims).verdict is AuditVerdict.MISSING


def test_rows_whose_acknowledgement_was_lost_are_searched_nearby(scene: Scene) -> None:
    """The first batch and the last one have no known offset."""
    log = scene.cluster.logs[TP]
    whole = claims_on(log)
    (claim,) = whole.partitions
    begin, last = log.batches[2].base_offset, log.batches[5].last_offset
    claims = replace(
        whole, partitions=(replace(claim, first=begin, last=last),), rows_without_offset=6
    )
    assert audited(scene, claims).verdict is AuditVerdict.COMPLETE
    overwritten(log, 6)
    assert audited(scene, claims).verdict is AuditVerdict.UNCLEAR
    overwritten(log, 5)
    overwritten(log, 1)
    assert audited(scene, claims).verdict is AuditVerdict.MISSING


def test_an_undecided_write_without_any_row_was_not_committed(
    scene: Scene,
) -> None:
    log = scene.cluster.logs[TP]
    claims = replace(claims_on(log), outcome=WriteOutcome.UNKNOWN)
    assert audited(scene, claims).verdict is AuditVerdict.COMPLETE
    lost(log, 6)
    assert audited(scene, claims).verdict is AuditVerdict.MISSING
    for at in (5, 4, 2, 1):
        lost(log, at)
    assert audited(scene, claims).verdict is AuditVerdict.NOT_COMMITTED


def test_rows_that_the_report_does_not_list_are_not_complete(scene: Scene) -> None:
    claims = claims_on(scene.cluster.logs[TP])
    more = replace(claims, rows=claims.rows + 5)
    result = audited(scene, more)
    assert (result.unlisted, result.verdict) == (5, AuditVerdict.UNCLEAR)


def test_a_partition_that_answers_nothing_is_unread(scene: Scene) -> None:
    claims = claims_on(scene.cluster.logs[TP])
    fault = scene.control.answer(ApiKey.FETCH, ErrorCode.KAFKA_STORAGE_ERROR, FOREVER)
    (found,) = audited(scene, claims).partitions
    assert fault.fired
    assert found.verdict is AuditVerdict.UNREAD
    assert "KAFKA_STORAGE_ERROR" in found.reason


def test_a_report_of_an_earlier_version_is_counted_by_topic(scene: Scene) -> None:
    """Nobody else wrote, somebody did, and rows are missing."""
    log = scene.cluster.logs[TP]
    whole = claims_on(log)
    (claim,) = whole.partitions
    old = replace(whole, producers=None, partitions=(replace(claim, rows=None, checksum=None),))
    assert audited(scene, old).verdict is AuditVerdict.UNCLEAR
    assert audited(scene, replace(old, topic_rows={TP.topic: 18})).verdict is AuditVerdict.COUNTED
    more = replace(old, topic_rows={TP.topic: 19})
    assert audited(scene, more).verdict is AuditVerdict.MISSING
    assert audited(scene, replace(more, rows_without_offset=1)).verdict is AuditVerdict.UNCLEAR
    assert audited(scene, replace(more, partitions_left_out=1)).verdict is AuditVerdict.UNCLEAR
    # Rows of a topic with no partition in the report were not searched.
    other = replace(old, rows=23, topic_rows={TP.topic: 18, "letters": 5})
    result = audited(scene, other)
    assert (result.unlisted, result.verdict) == (5, AuditVerdict.UNCLEAR)


def test_aborted_rows_of_others_are_no_loss_of_an_old_report(scene: Scene) -> None:
    """The log begins later, and an application has aborted a transaction in the range."""
    log = scene.cluster.logs[TP]
    log.append(batch(33, 0, 4))
    end(log, 33, commit=False)
    whole = claims_on(log)
    (claim,) = whole.partitions
    claim = replace(claim, last=log.end - 1, rows=None, checksum=None)
    log.start, log.batches = 9, log.batches[3:]
    old = replace(whole, producers=None, partitions=(claim,))
    (found,) = audited(scene, old).partitions
    assert (found.verdict, found.aborted, found.deleted) == (AuditVerdict.DELETED, 4, 7)
    seen = {audited(scene, old, seed).verdict for seed in range(9)}
    assert seen <= {AuditVerdict.DELETED, AuditVerdict.UNCLEAR}


def test_compaction_is_no_loss_of_an_old_report(scene: Scene) -> None:
    """Rows are claimed by topic; with unknown settings compaction is possible."""
    log = scene.cluster.logs[TP]
    whole = claims_on(log)
    (claim,) = whole.partitions
    old = replace(
        whole,
        producers=None,
        partitions=(replace(claim, rows=None, checksum=None),),
        topic_rows={TP.topic: 18},
    )
    lost(log, 4)
    configs = scene.cluster.topics[TP.topic].configs
    assert audited(scene, old).verdict is AuditVerdict.MISSING
    configs["cleanup.policy"] = "compact"
    assert audited(scene, old).verdict is AuditVerdict.COMPACTED
    assert audited(scene, replace(old, topic_rows={TP.topic: 99})).verdict is AuditVerdict.MISSING
    del configs["cleanup.policy"]
    scene.cluster.broker_configs = {}
    assert audited(scene, old).verdict is AuditVerdict.UNCLEAR


def test_a_partition_that_is_gone_explains_rows_of_its_topic(scene: Scene) -> None:
    """An old report has the rows of the topic only."""
    whole = claims_on(scene.cluster.logs[TP])
    (claim,) = whole.partitions
    here = replace(claim, rows=None, checksum=None)
    gone = replace(here, tp=TopicPartition(TP.topic, 5))
    old = replace(whole, producers=None, partitions=(here, gone), topic_rows={TP.topic: 40})
    verdicts = [one.verdict for one in audited(scene, old).partitions]
    assert verdicts == [AuditVerdict.UNCLEAR, AuditVerdict.GONE]


def test_a_failed_write_without_producers_proves_no_visible_row(scene: Scene) -> None:
    whole = claims_on(scene.cluster.logs[TP])
    failed = replace(whole, producers=None, outcome=WriteOutcome.FAILED)
    (found,) = audited(scene, failed).partitions
    assert found.verdict is AuditVerdict.UNCLEAR
    assert "the report has no producers" in found.reason


@pytest.mark.parametrize("seed", [None, 1])
def test_an_audit_whose_time_is_over_has_read_nothing(scene: Scene, seed: int | None) -> None:
    claims = claims_on(scene.cluster.logs[TP])
    with scene.client({}) as client:
        result = audit_over(client, claims, seed, until_ms=client.clock.now_ms())
    (found,) = result.partitions
    assert (found.verdict, found.checksum) == (AuditVerdict.UNREAD, None)
    assert found.reason == "the time for the audit is over"


@pytest.mark.parametrize("api", [ApiKey.FETCH, ApiKey.METADATA])
def test_an_audit_that_waits_when_its_time_is_over_says_so(scene: Scene, api: ApiKey) -> None:
    """It named the limit of a request, which was not over."""
    claims = claims_on(scene.cluster.logs[TP])
    with scene.client() as client:
        until_ms = client.clock.now_ms() + 5_000
        client.describe_topics((), allow_auto_topic_creation=False)
        scene.control.drop(api, FOREVER, where=lambda one: api is ApiKey.FETCH or one.body.topics)
        result = audit_over(client, claims, None, until_ms=until_ms)
        assert client.clock.now_ms() - until_ms < 1_000
    (found,) = result.partitions
    assert (found.verdict, found.reason) == (AuditVerdict.UNREAD, "the time for the audit is over")


def test_brokers_that_are_silent_do_not_make_a_topic_gone(scene: Scene) -> None:
    """No broker has answered that there is no such topic."""
    claims = claims_on(scene.cluster.logs[TP])
    with scene.client(max_block_ms=3_000) as client:
        client.describe_topics((), allow_auto_topic_creation=False)
        fault = scene.control.drop(ApiKey.METADATA, FOREVER, where=lambda one: one.body.topics)
        with pytest.raises(KafkaTimeoutError, match="no broker answered within 3000 ms"):
            audit_over(client, claims, None)
    assert fault.fired


@pytest.mark.parametrize("without_offset", [0, 6])
def test_a_log_without_a_known_end_is_unread(scene: Scene, without_offset: int) -> None:
    """ListOffsets fails for a log that is cut, and for one that is to be searched further."""
    log = scene.cluster.logs[TP]
    claims = replace(claims_on(log), rows_without_offset=without_offset)
    if without_offset:
        overwritten(log, 5)
    else:
        log.truncate(log.batches[5].base_offset)
    fault = scene.control.answer(ApiKey.LIST_OFFSETS, ErrorCode.KAFKA_STORAGE_ERROR, FOREVER)
    (found,) = audited(scene, claims).partitions
    assert fault.fired
    assert (found.verdict, found.checksum is None) == (AuditVerdict.UNREAD, not without_offset)
    assert "KAFKA_STORAGE_ERROR" in found.reason


@pytest.mark.parametrize("at", [OURS[0], OURS[-1]])
def test_a_sample_of_a_compacted_topic_proves_no_loss(scene: Scene, at: int) -> None:
    """Compaction has removed the first batch, or the last one."""
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    lost(log, at)
    assert audited(scene, claims, 1).verdict is AuditVerdict.MISSING
    scene.cluster.topics[TP.topic].configs["cleanup.policy"] = "compact,delete"
    assert audited(scene, claims, 1).verdict is AuditVerdict.COMPACTED
    assert audited(scene, claims).verdict is AuditVerdict.COMPACTED


@pytest.mark.parametrize("at", [OURS[0], OURS[-1]])
def test_compaction_does_not_explain_records_of_others(scene: Scene, at: int) -> None:
    """Compaction leaves a gap in the offsets. Here the offsets have another producer's records."""
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    overwritten(log, at)
    scene.cluster.topics[TP.topic].configs["cleanup.policy"] = "compact"
    assert {audited(scene, claims, seed).verdict for seed in range(9)} == {AuditVerdict.MISSING}


def test_a_sample_finds_a_batch_that_is_there_twice(scene: Scene) -> None:
    """Both copies are in one place of the sample: the log is a single response."""
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    log.batches[3] = moved(log.batches[1], log.batches[3])
    verdicts = {audited(scene, claims, seed).verdict for seed in range(20)}
    assert AuditVerdict.SURPLUS in verdicts


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(
    ("lie", "verdict"),
    [
        (lost, AuditVerdict.UNCLEAR),
        (overwritten, AuditVerdict.MISSING),
        (rewritten, AuditVerdict.UNCLEAR),
    ],
)
def test_unknown_settings_may_explain_a_loss(
    scene: Scene,
    seed: int | None,
    lie: Callable[[PartitionLog, int], None],
    verdict: AuditVerdict,
) -> None:
    """Compaction leaves offsets without a record, or other bytes, and no records of others."""
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    lie(log, OURS[0])
    scene.cluster.broker_configs = {}
    (found,) = audited(scene, claims, seed).partitions
    # A sample compares no bytes.
    assert found.verdict is (AuditVerdict.SAMPLED if seed and lie is rewritten else verdict)
    assert ("DESCRIBE_CONFIGS" in found.reason) is (found.verdict is AuditVerdict.UNCLEAR)


def test_a_marker_that_can_not_be_read_is_damage(scene: Scene) -> None:
    log = scene.cluster.logs[TP]
    claims = claims_on(log)
    log.batches[3] = moved(control_of_nonsense(), log.batches[3])
    (found,) = audited(scene, claims).partitions
    assert found.verdict is AuditVerdict.DAMAGED
    assert "a control record's key is too short for its type" in found.reason


def control_of_nonsense() -> Batch:
    header = batch(9, 0, 1)
    data = bytearray(header.data)
    data[21:23] = (0x30).to_bytes(2)
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4)
    return read_batch(bytes(data))


def test_a_counted_range_keeps_no_producers(scene: Scene) -> None:
    """A thousand tasks in each of a thousand partitions are a million of them."""
    (claim,) = claims_on(scene.cluster.logs[TP]).partitions
    found = RangeCount(TP, claim.first, claim.last, None)
    with scene.client({}) as client:
        existing_to_read(client, TP.topic)
        count_ranges(client, [found])
    assert (found.rows, found.next_sequence) == (18, {})
