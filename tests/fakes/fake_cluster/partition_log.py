"""One partition: its batches as bytes, and what it remembers of producers.

Kafka's UnifiedLog, ProducerStateManager and ProducerAppendInfo. Followers have all the leader has,
so there is one log for all replicas and the high watermark is its end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.batch_checks import Batch, RefusedError, marker
from tests.fakes.record_reader import Record, parse_batch

_LAST_SEQUENCE = 2**31 - 1
REMEMBERED = 5


@dataclass(frozen=True, slots=True)
class Remembered:
    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class ProducerEntry:
    """``transaction_start`` is the first offset of the open transaction, or None."""

    epoch: int = -1
    batches: deque[Remembered] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    transaction_start: int | None = None
    coordinator_epoch: int = -1
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


@dataclass(slots=True)
class Verification:
    """A producer whose transaction the coordinator was asked about (VerificationStateEntry).

    Of what was refused meanwhile the lowest sequence must come first, or records would be lost.
    """

    lowest_sequence: int
    epoch: int
    v2: bool


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int


@dataclass(eq=False)
class PartitionLog:
    leader: int
    replicas: tuple[int, ...]
    isr: set[int]
    min_isr: int = 1
    max_message_bytes: int = 1048588
    compacted: bool = False
    log_append_time: bool = False
    leader_epoch: int = 0
    start: int = 0
    end: int = 0
    batches: list[Batch] = field(default_factory=list)
    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    verifications: dict[int, Verification] = field(default_factory=dict)

    @property
    def needed_isr(self) -> int:
        """min.insync.replicas, but no more than there are replicas (since Kafka 4.0)."""
        return min(self.min_isr, len(self.replicas))

    @property
    def last_stable_offset(self) -> int:
        open_ = [e.transaction_start for e in self.producers.values()]
        return min((o for o in open_ if o is not None), default=self.end)

    def has_ongoing(self, producer_id: int, epoch: int) -> bool:
        entry = self.producers.get(producer_id)
        return entry is not None and entry.transaction_start is not None and entry.epoch == epoch

    # -- producers --

    def begin_verification(self, batch: Batch, *, v2: bool) -> None:
        """The coordinator is asked about this batch's transaction, of protocol 2 or not."""
        sequence, epoch = batch.base_sequence, batch.producer_epoch
        known = self.verifications.setdefault(batch.producer_id, Verification(sequence, epoch, v2))
        if epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, sequence)
        elif epoch > known.epoch:
            known.lowest_sequence, known.epoch = sequence, epoch

    def append(self, batch: Batch) -> int:
        """Append a client's checked batch; its base offset, or a duplicate's. RefusedError."""
        if batch.producer_id < 0:
            return self._write(batch)
        entry = self.producers.get(batch.producer_id)
        if entry is not None and (known := self._duplicate(entry, batch)) is not None:
            return known.base_offset
        if entry is None:
            entry = ProducerEntry()
        self._check_sequence(entry, batch)
        if entry.transaction_start is not None and not batch.transactional:
            raise RefusedError(ErrorCode.INVALID_TXN_STATE, "expected a transactional write")
        offset = self._write(batch)
        self.producers[batch.producer_id] = entry
        if batch.transactional:
            self.verifications.pop(batch.producer_id, None)
        entry.take_epoch(batch.producer_epoch)
        last = offset + batch.last_offset_delta
        entry.batches.append(Remembered(batch.base_sequence, batch.last_sequence, offset, last))
        entry.last_timestamp = batch.max_timestamp
        if batch.transactional and entry.transaction_start is None:
            entry.transaction_start = offset
        return offset

    @staticmethod
    def _duplicate(entry: ProducerEntry, batch: Batch) -> Remembered | None:
        if entry.epoch != batch.producer_epoch:
            return None
        wanted = (batch.base_sequence, batch.last_sequence)
        found = [b for b in entry.batches if (b.first_sequence, b.last_sequence) == wanted]
        return found[0] if found else None

    def _check_sequence(self, entry: ProducerEntry, batch: Batch) -> None:
        if batch.producer_epoch < entry.epoch:
            raise RefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, f"the epoch is {entry.epoch}")
        first, asked = batch.base_sequence, self.verifications.get(batch.producer_id)
        if asked is not None and first > asked.lowest_sequence:
            why = f"{first} before {asked.lowest_sequence}"
            raise RefusedError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, why)
        if asked is not None and asked.v2 and not entry.batches:
            wanted = 0
        elif entry.epoch == -1:
            return  # a producer nobody knows may begin with any sequence
        elif batch.producer_epoch != entry.epoch:
            wanted = 0
        else:
            last = entry.last_sequence
            wanted = 0 if last == _LAST_SEQUENCE else last + 1
        if first != wanted:
            raise RefusedError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{first}, not {wanted}")

    def end_transaction(
        self, producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, timestamp: int
    ) -> None:
        """Write the marker (ProducerAppendInfo.appendEndTxnMarker)."""
        entry = self.producers.setdefault(producer_id, ProducerEntry())
        if epoch < entry.epoch:
            raise RefusedError(ErrorCode.INVALID_PRODUCER_EPOCH, f"the epoch is {entry.epoch}")
        control = marker(
            producer_id,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
        )
        offset = self._write(control)
        if entry.transaction_start is not None and not commit:
            gone = AbortedTransaction(producer_id, entry.transaction_start, offset)
            self.aborted.append(gone)
        entry.take_epoch(epoch)
        entry.transaction_start = None
        self.verifications.pop(producer_id, None)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp

    def _write(self, batch: Batch) -> int:
        offset = self.end
        self.batches.append(batch.at(offset, self.leader_epoch))
        self.end = offset + batch.last_offset_delta + 1
        return offset

    # -- what happens to a log --

    def move(self, leader: int) -> None:
        self.leader = leader
        self.leader_epoch += 1

    def restart(self) -> None:
        """A clean restart: the snapshot holds no more than each producer's last batch."""
        for entry in self.producers.values():
            while len(entry.batches) > 1:
                entry.batches.popleft()

    def forget(self, producer_id: int) -> None:
        """producer.id.expiration.ms passed."""
        self.producers.pop(producer_id, None)

    def truncate(self, end: int) -> None:
        """An unclean election: all from ``end`` on is lost, with what was known of it."""
        self.batches = [b for b in self.batches if b.last_offset < end]
        self.end = self.batches[-1].last_offset + 1 if self.batches else self.start
        for entry in self.producers.values():
            kept = [b for b in entry.batches if b.last_offset < self.end]
            entry.batches = deque(kept, maxlen=REMEMBERED)
            if entry.transaction_start is not None and entry.transaction_start >= self.end:
                entry.transaction_start = None
        known = self.producers.items()
        self.producers = {p: e for p, e in known if e.batches or e.transaction_start is not None}
        self.aborted = [a for a in self.aborted if a.last_offset < self.end]

    def frozen(self) -> PartitionLog:
        """As it is now: what a leader goes on showing that is none any more."""
        producers = {
            pid: replace(entry, batches=entry.batches.copy())
            for pid, entry in self.producers.items()
        }
        return replace(
            self,
            isr=set(self.isr),
            batches=list(self.batches),
            producers=producers,
            aborted=list(self.aborted),
            verifications={},
        )

    # -- readers --

    def records(self, *, committed: bool = False) -> list[Record]:
        """The data records in the order of their offsets; ``committed``: as read_committed does."""
        found: list[Record] = []
        for batch in self.batches:
            if batch.control:
                continue
            if committed and batch.base_offset >= self.last_stable_offset:
                break
            if committed and batch.transactional and self.is_aborted(batch):
                continue
            # (Our reader would take an offset beyond the header's for a broken batch.)
            records = parse_batch(batch.data).records
            found += [replace(r, offset=batch.base_offset + i) for i, r in enumerate(records)]
        return found

    def is_aborted(self, batch: Batch) -> bool:
        return any(
            a.producer_id == batch.producer_id
            and a.first_offset <= batch.base_offset < a.last_offset
            for a in self.aborted
        )

    def values(self, *, committed: bool = False) -> list[bytes | None]:
        return [record.value for record in self.records(committed=committed)]
