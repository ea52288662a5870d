"""Rule R3: the table of answers, in races that ``test_sender_sequences.py`` does not show."""

from __future__ import annotations

from spark_kafka_sink.producer.transaction.partition_sequences import (
    ACTIONS,
    Action,
    Answer,
    PartitionSequences,
    Situation,
)
from spark_kafka_sink.records.record_batch import NO_SEQUENCE, increment_sequence

SEQUENCES = 2**31


class Sequenced:
    """Drives one PartitionSequences with batches named by letters, of one record each."""

    def __init__(self, next_sequence: int = 0) -> None:
        self.sequences: PartitionSequences[str] = PartitionSequences(next_sequence=next_sequence)

    def send(self, name: str, count: int = 1) -> None:
        assert self.sequences.can_send_new()
        self.sequences.assign_sequence(name, count)

    def fail(self, name: str) -> tuple[str, ...]:
        """``name``, of ``send``, fails alone."""
        return self.sequences.move_on(name)

    def answer(self, name: str, answer: Answer, offset: int = -1) -> tuple[Action, tuple[str, ...]]:
        verdict = self.sequences.answer(name, answer, offset)
        return verdict.action, verdict.proven


def established(*names: str, next_sequence: int = 0) -> Sequenced:
    """The first batch is acknowledged; those of ``names`` are sent behind it."""
    one = Sequenced(next_sequence)
    one.send("first")
    assert one.answer("first", Answer.ACKNOWLEDGED, 0) == (Action.COMPLETE, ())
    for name in names:
        one.send(name)
    return one


def test_the_table_has_an_action_for_every_situation_and_answer() -> None:
    assert set(ACTIONS) == {(s, a) for s in Situation for a in Answer}


def test_an_old_out_of_order_answer_raises_no_doubt() -> None:
    one = established("a", "b")
    one.answer("a", Answer.UNCLEAR)
    one.sequences.sent("a")
    one.answer("a", Answer.ACKNOWLEDGED, 1)
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    one.sequences.sent("b")
    assert one.answer("b", Answer.ACKNOWLEDGED, 2) == (Action.COMPLETE, ())


def test_the_attempt_fails_when_nothing_can_prove_a_doubted_one() -> None:
    one = established("a", "b")
    assert one.answer("a", Answer.OUT_OF_ORDER) == (Action.AWAIT_PROOF, ())
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    one.sequences.sent("b")
    verdict = one.sequences.answer("b", Answer.OUT_OF_ORDER)
    assert verdict.action is Action.FAIL
    assert verdict.reason is not None


def test_an_offset_without_room_for_earlier_records_proves_none() -> None:
    """A topic that was created again accepts any first sequence, from offset 0."""
    one = Sequenced()
    one.send("first", 100)
    one.answer("first", Answer.ACKNOWLEDGED, 0)
    one.send("a", 10)
    one.send("b", 10)
    one.answer("a", Answer.UNCLEAR)
    verdict = one.sequences.answer("b", Answer.ACKNOWLEDGED, 0)
    assert verdict.action is Action.FAIL
    assert "offset 0" in (verdict.reason or "")


def test_unknown_producer_id_fails_unless_others_were_unanswered() -> None:
    one = established("a", "b")
    one.answer("a", Answer.UNCLEAR)
    assert one.answer("b", Answer.UNKNOWN_PRODUCER) == (Action.RESEND, ())
    one.sequences.sent("a")
    assert one.answer("a", Answer.UNKNOWN_PRODUCER)[0] is Action.FAIL


def test_split_pieces_take_the_batchs_place_and_sequences() -> None:
    """SenderTest#testIdempotentSplitBatchAndSend: two batches at s and s+1, and the next sequence
    is unchanged.
    """
    one = established()
    one.send("whole", 2)
    one.send("later")
    one.sequences.remove("whole")
    one.sequences.add("half 2", 2, 1)
    one.sequences.add("half 1", 1, 1)
    assert one.sequences.next_sequence == 4
    assert one.answer("later", Answer.OUT_OF_ORDER) == (Action.RESEND, ())
    for name, sequence in (("half 1", 1), ("half 2", 2), ("later", 3)):
        assert one.sequences.first_sequence == sequence
        one.sequences.sent(name)
        assert one.answer(name, Answer.ACKNOWLEDGED, sequence) == (Action.COMPLETE, ())


def test_sequences_wrap_to_0_and_pieces_keep_their_order() -> None:
    """TransactionManagerTest#testSequenceNumberOverflow."""
    assert increment_sequence(SEQUENCES - 1, 1) == 0
    assert increment_sequence(SEQUENCES - 6, 10) == 4
    one = established(next_sequence=SEQUENCES - 1)
    one.send("a", 2)
    assert one.sequences.next_sequence == 2
    one = established(next_sequence=SEQUENCES - 2)
    one.send("whole", 3)
    one.sequences.remove("whole")
    one.sequences.add("half 2", 0, 2)
    one.sequences.add("half 1", SEQUENCES - 1, 1)
    assert one.sequences.first_sequence == SEQUENCES - 1


# ---- behind a batch that failed for good (a transactional producer lives on, to abort) -----------


def test_behind_a_failed_batch_only_acknowledgements_are_taken() -> None:
    """SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted,
    in its place: nothing is renumbered.
    """
    for answer, action in (
        (Answer.ACKNOWLEDGED, Action.COMPLETE),
        (Answer.OUT_OF_ORDER, Action.FAIL),
        (Answer.UNCLEAR, Action.FAIL),
        (Answer.REFUSED, Action.FAIL),
    ):
        one = established("a", "b")
        assert one.sequences.fail("a", unclear=False) == ()
        assert not one.sequences.can_send_new()
        verdict = one.sequences.answer("b", answer, 2)
        assert verdict.action is action
        assert verdict.reason is None
        assert not one.sequences.can_send_new(), "the hole stays, whatever is answered"


def test_those_in_doubt_fail_with_it_and_are_lost() -> None:
    one = established("a", "b")
    assert one.sequences.answer("a", Answer.OUT_OF_ORDER).action is Action.AWAIT_PROOF
    assert one.sequences.fail("b", unclear=False) == ("a",)
    assert len(one.sequences) == 0
    assert one.sequences.has_unresolved, "a may be in the log"


def test_a_lost_batch_is_settled_by_its_answer_or_a_later_ack() -> None:
    """SenderTest#testUnresolvedSequencesAreNotFatal."""
    for settle in ("own", "later", "earlier"):
        one = established("a", "b", "c")
        one.sequences.fail("b", unclear=True)
        assert one.sequences.has_unresolved
        if settle == "own":
            one.sequences.resolve("b")
        elif settle == "later":
            one.sequences.answer("c", Answer.ACKNOWLEDGED, 3)
        else:
            one.sequences.answer("a", Answer.ACKNOWLEDGED, 1)
        assert one.sequences.has_unresolved is (settle == "earlier")


def test_a_clear_refusal_loses_nothing() -> None:
    one = established("a")
    one.sequences.fail("a", unclear=False)
    assert not one.sequences.has_unresolved


# ---- a batch of ``send`` fails alone -------------------------------------------------------------


def test_behind_a_refused_record_the_others_wait_for_the_next_epoch() -> None:
    one = established("a", "b", "c")
    assert one.answer("a", Answer.INVALID) == (Action.FAIL, ())
    assert one.fail("a") == ()
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.MOVE, ())
    assert not one.sequences.moved, "c has no answer yet"
    assert not one.sequences.can_send_new()
    assert one.answer("c", Answer.UNCLEAR) == (Action.RESEND, ())
    assert not one.sequences.moved, "it is not known whether c is in the log"
    assert one.sequences.first_sequence == 3, "c is sent again with its sequence"
    one.sequences.sent("c")
    assert one.answer("c", Answer.OUT_OF_ORDER) == (Action.MOVE, ())
    assert one.sequences.moved
    assert one.sequences.unresolved == ["b", "c"]


def test_one_that_waits_to_be_sent_again_needs_no_other_answer() -> None:
    """Its only answer was OUT_OF_ORDER: no copy of it is in the log."""
    one = established("a", "b")
    one.answer("a", Answer.UNCLEAR)
    one.answer("b", Answer.OUT_OF_ORDER)
    one.sequences.sent("a")
    one.answer("a", Answer.INVALID)
    one.fail("a")
    assert one.sequences.moved
    assert one.sequences.unresolved == ["b"]


def test_an_acknowledgement_behind_a_refusal_proves_nothing_before_it() -> None:
    """Only a partition that lost its records, or was created again, accepts it."""
    one = established("a", "b", "c")
    one.answer("a", Answer.LOST)
    one.answer("b", Answer.INVALID)
    one.fail("b")
    verdict = one.sequences.answer("c", Answer.ACKNOWLEDGED, 1_000)
    assert verdict.action is Action.FAIL
    assert "although a batch before it was refused" in (verdict.reason or "")
    one.fail("c")
    one.sequences.sent("a")
    assert one.answer("a", Answer.OUT_OF_ORDER) == (Action.FAIL, ()), (
        "c is in the log, so it may be"
    )


def test_a_late_acknowledgement_leaves_those_before_it_in_doubt() -> None:
    """b is in the log, so a may be, and be forgotten."""
    one = established("a", "b")
    one.answer("a", Answer.UNCLEAR)
    one.fail("b")
    one.sequences.answered_late("b", Answer.ACKNOWLEDGED)
    one.sequences.sent("a")
    assert one.answer("a", Answer.OUT_OF_ORDER) == (Action.FAIL, ())


def test_a_late_refusal_ends_the_doubt_of_those_behind_it() -> None:
    one = established("a", "b")
    one.fail("a")
    one.answer("b", Answer.LOST)
    one.sequences.answered_late("a", Answer.REFUSED)
    one.sequences.sent("b")
    assert one.answer("b", Answer.OUT_OF_ORDER) == (Action.MOVE, ())


def test_a_batch_that_fails_late_takes_those_it_leaves_in_doubt() -> None:
    """d may be appended once b is; if d is in the log, c may be, and be forgotten."""
    one = established("a", "b", "c", "d")
    one.answer("a", Answer.INVALID)
    one.fail("a")
    one.answer("b", Answer.LOST)
    one.answer("c", Answer.UNCLEAR)
    one.answer("d", Answer.LOST)
    for name in ("c", "d"):
        one.sequences.sent(name)
        assert one.answer(name, Answer.OUT_OF_ORDER) == (Action.MOVE, ())
    assert one.fail("b") == ("c", "d")
    assert one.sequences.moved


def test_one_that_awaits_its_proof_fails_when_nothing_can_follow() -> None:
    """Unless no copy of it can be in the log."""
    for before, fails in ((Answer.UNCLEAR, ("a",)), (None, ())):
        one = established("a", "b")
        if before is not None:
            one.answer("a", before)
            one.sequences.sent("a")
        assert one.answer("a", Answer.OUT_OF_ORDER) == (Action.AWAIT_PROOF, ())
        one.answer("b", Answer.INVALID)
        assert one.fail("b") == fails
        assert one.sequences.moved


def test_a_batch_that_awaits_its_proof_has_not_the_first_sequence() -> None:
    """It has its answer and is not sent again."""
    one = established()
    assert one.sequences.first_sequence == NO_SEQUENCE
    one.send("a")
    assert one.sequences.first_sequence == 1
    one.send("b")
    assert one.answer("a", Answer.OUT_OF_ORDER) == (Action.AWAIT_PROOF, ())
    assert one.sequences.first_sequence == 2
