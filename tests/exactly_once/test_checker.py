"""The checker finds every fault that is planted, and nothing in a clean log."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from tests.exactly_once import records
from tests.exactly_once.checker import LETTERS, Fault, check, judge, open_transactions
from tests.exactly_once.records import Fate, Seen
from tests.exactly_once.truth import Batch, Result, TruthWriter, read_truth

RUN = "r"
OK = Batch(0, 0, 6, Result.OK)


def rows(batch: Batch = OK, *, attempt: str = "0", tasks: int = 2) -> list[Seen]:
    """The rows of ``batch``: task t writes every ``tasks``-th row, to partition t."""
    found = [
        Seen(seq % tasks, seq // tasks, RUN, batch.number, seq % tasks, attempt, seq, Fate.COMMIT)
        for seq in batch.seqs
    ]
    return sorted(found, key=lambda seen: (seen.partition, seen.offset))


def test_a_clean_log_is_clean():
    report = judge([OK], rows(), rows(), run=RUN)
    assert report.clean, str(report)
    assert report.visible == 6
    assert report.aborted == 0


def test_a_row_that_is_missing_of_a_batch_that_is_ok_is_lost():
    assert judge([OK], rows()[1:], rows(), run=RUN).faults == {Fault.LOST}


def test_a_row_seen_twice_is_doubled_and_names_its_attempts():
    again = Seen(1, 9, RUN, 0, 1, "1", 5, Fate.COMMIT)
    report = judge([OK], [*rows(), again], run=RUN)
    assert report.faults == {Fault.DOUBLED, Fault.MIXED}
    assert "attempt 0" in str(report)
    assert "attempt 1" in str(report)


def test_a_row_that_the_same_attempt_wrote_twice_is_doubled():
    again = replace(rows()[-1], offset=9)
    assert judge([OK], [*rows(), again], run=RUN).faults == {Fault.DOUBLED, Fault.OUT_OF_ORDER}


def with_letters() -> tuple[Batch, list[Seen]]:
    """Of ten rows one of each kind that can't be sent, as letters."""
    batch = Batch(0, 0, 20, Result.OK)
    found = []
    for seen in rows(batch):
        kind = records.bad_kind(seen.seq, 20)
        code = "" if kind is None else records.BAD_CODES[kind]
        where = LETTERS if code else seen.partition
        found.append(replace(seen, partition=where, offset=seen.seq, code=code))
    assert sum(seen.partition == LETTERS for seen in found) == 5
    return batch, sorted(found, key=lambda seen: (seen.partition, seen.offset))


def test_letters_are_judged_with_the_rows():
    batch, seen = with_letters()
    assert judge([batch], seen, seen, run=RUN, bad=20).clean
    assert judge([batch], seen[:-1], seen, run=RUN, bad=20).faults == {Fault.LOST}
    again = [*seen, replace(seen[-1], offset=99)]
    assert Fault.DOUBLED in judge([batch], again, again, run=RUN, bad=20).faults


@pytest.mark.parametrize("change", [{"code": "KP0000"}, {"partition": 1}, {"code": ""}])
def test_a_letter_at_the_wrong_place_is_found(change):
    batch, seen = with_letters()
    other = [*seen[:-1], replace(seen[-1], **change)]
    assert Fault.MISPLACED in judge([batch], other, other, run=RUN, bad=20).faults


def test_a_row_without_a_fault_must_not_be_a_letter():
    batch, seen = with_letters()
    other = [replace(seen[0], partition=LETTERS, code="KP0212"), *seen[1:]]
    assert Fault.MISPLACED in judge([batch], other, other, run=RUN, bad=20).faults


def test_two_attempts_that_share_a_tasks_rows_are_mixed():
    mixed = [replace(s, attempt="1") if s.seq == 5 else s for s in rows()]
    assert judge([OK], mixed, run=RUN).faults == {Fault.MIXED}


def test_a_row_of_a_failed_batch_is_aborted_but_visible():
    failed = replace(OK, result=Result.FAIL)
    assert judge([failed], rows()[:1], rows(), run=RUN).faults == {Fault.ABORTED_VISIBLE}
    assert judge([failed], [], rows(), run=RUN).clean


@pytest.mark.parametrize("result", [Result.KILLED, Result.UNKNOWN])
def test_a_batch_of_unknown_outcome_is_whole_or_absent_else_torn(result):
    unclear = replace(OK, result=result)
    assert judge([unclear], rows(), run=RUN).clean
    assert judge([unclear], [], rows(), run=RUN).clean
    assert judge([unclear], rows()[:3], rows(), run=RUN).faults == {Fault.TORN}


def test_a_part_may_be_visible_when_the_error_named_ids():
    told = replace(OK, result=Result.UNKNOWN, ids=("p~run~g2.w~0",))
    assert judge([told], rows()[:3], rows(), run=RUN).clean


def test_rows_in_another_order_than_written_are_out_of_order():
    first, second, *others = rows()
    swapped = [replace(second, offset=first.offset), replace(first, offset=second.offset), *others]
    assert judge([OK], swapped, run=RUN).faults == {Fault.OUT_OF_ORDER}


def test_a_broken_record_is_corrupt():
    broken = Seen(0, 7, intact=False)
    assert judge([OK], [*rows(), broken], run=RUN).faults == {Fault.CORRUPT}
    assert judge([OK], rows(), [*rows(), broken], run=RUN).faults == {Fault.CORRUPT}


def test_a_row_that_was_to_be_aborted_contradicts_its_fate():
    marked = [replace(s, fate=Fate.ABORT) if s.seq == 2 else s for s in rows()]
    assert judge([OK], marked, run=RUN).faults == {Fault.FATE}


@pytest.mark.parametrize("change", [{"run": "other"}, {"batch": 7}, {"seq": 99}])
def test_a_row_that_was_never_written_is_uninvited(change):
    stranger = replace(rows()[-1], offset=9, **change)
    assert judge([OK], [*rows(), stranger], run=RUN).faults == {Fault.UNINVITED}


def test_an_open_transaction_hangs():
    assert judge([OK], rows(), run=RUN, hanging=["t-0: LSO 3 of 6"]).faults == {Fault.HANGING}


def test_a_report_names_twenty_offenders_and_counts_the_rest():
    text = str(judge([Batch(0, 0, 50, Result.OK)], [], run=RUN))
    assert "LOST" in text
    assert ": 50: " in text
    assert text.endswith("+30")


@pytest.mark.parametrize(
    ("at", "byte"), [(0, 0), (7, 255), (8, 1), (20, 0)], ids=["seq", "seq end", "crc", "padding"]
)
def test_a_changed_byte_of_a_value_is_found(at, byte):
    key = records.key(RUN, 3, 1, "d0.1")
    value = records.value(key, 258)
    named = records.headers(Fate.COMMIT, "d0.1")
    assert records.parse(0, 0, key, value, named) == Seen(0, 0, RUN, 3, 1, "d0.1", 258, Fate.COMMIT)
    broken = bytearray(value)
    broken[at] ^= byte or 16
    assert not records.parse(0, 0, key, bytes(broken), named).intact
    assert not records.parse(0, 0, records.key(RUN, 3, 1, "d0.2"), value, named).intact
    assert not records.parse(0, 0, key, value, [("fate", b"commit")]).intact
    assert not records.parse(0, 0, None, value, named).intact


def test_the_truth_file_keeps_the_last_word_of_each_batch(tmp_path):
    path = tmp_path / "truth"
    truth = TruthWriter(path)
    truth.invoke(0, 0, 10)
    truth.ok(0)
    truth.invoke(1, 10, 10)
    truth.failed(
        1, "x.CommitOutcomeUnknownError: the outcome of (p~run-1~g2.w~3, p~job~17) is open"
    )
    truth.invoke(2, 20, 10)
    truth.failed(2, "CommitError: took too long")
    truth.invoke(3, 30, 10)
    truth.note(killed=True)
    truth.invoke(0, 0, 10)
    truth.invoke(2, 20, 10)
    truth.close()
    with path.open("ab") as file:
        file.write(b'{"op": "OK", "ba')  # a SIGKILL in the middle of a line
    zero, one, two, three = read_truth(path)
    assert zero.result is Result.OK
    assert one.result is Result.UNKNOWN
    assert one.ids == ("p~job~17", "p~run-1~g2.w~3")
    assert two.result is Result.KILLED, "it runs again"
    assert three.result is Result.KILLED


# --- with a real broker --------------------------------------------------------------------------


def _produce(producer, topic: str, batch: Batch, task: int, fate: Fate) -> None:
    key = records.key(RUN, batch.number, task, "0")
    for seq in batch.seqs:
        producer.produce(
            topic,
            key=key,
            value=records.value(key, seq),
            headers=records.headers(fate, "0"),
            partition=task,
        )
    producer.flush()


def test_readers_distinguish_committed_aborted_and_open(kafka):
    from confluent_kafka import Producer

    topic, prefix = kafka.unique_topic("checker", 2), f"check.{uuid.uuid4().hex[:8]}"
    truth = [Batch(0, 0, 50, Result.OK), Batch(1, 50, 50, Result.FAIL), Batch(2, 100, 5)]
    for batch, end in zip(truth[:2], ("commit", "abort"), strict=True):
        name = f"{prefix}~run~g2.w~{batch.number}"
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
        producer.init_transactions(20)
        producer.begin_transaction()
        _produce(producer, topic, batch, batch.number, Fate[end.upper()])
        getattr(producer, f"{end}_transaction")(20)
    report = check(kafka.bootstrap, topic, truth, run=RUN, prefix=prefix)
    assert report.clean, str(report)
    assert (report.visible, report.aborted) == (50, 50)

    name = f"{prefix}~run~g2.w~9"
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name}
    left_open = Producer(settings)
    left_open.init_transactions(20)
    left_open.begin_transaction()
    _produce(left_open, topic, truth[2], 0, Fate.OPEN)
    assert open_transactions(kafka.bootstrap, prefix) == [f"{name} is Ongoing"]
    assert open_transactions(kafka.bootstrap, prefix[:-1]) == [], "a beginning of it is another"
    report = check(kafka.bootstrap, topic, truth, run=RUN, prefix=prefix, settle_s=0.2)
    assert report.faults == {Fault.HANGING}
    assert "LSO" in str(report)
    assert name in str(report)

    left_open.commit_transaction(20)
    lie = [*truth[:2], replace(truth[2], result=Result.FAIL)]
    report = check(kafka.bootstrap, topic, lie, run=RUN, prefix=prefix)
    assert report.faults == {Fault.ABORTED_VISIBLE}
