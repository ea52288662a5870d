"""The calls of a record of ``send`` may not grow unseen: each is a hundredth of its time."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from types import FrameType

from spark_kafka_sink.producer.producer_record import ProducerRecord, RecordMetadata
from spark_kafka_sink.producer.send.record_future import ProduceRequestResult, RecordFuture
from tests.fakes.accumulator_world import cluster_of
from tests.producer.answered_producers import without_thread

ROWS = 1_000
#: Calls of Python functions for a record: as measured, and one more for what its batch takes.
SENT, TOLD = 11, 2


class Calls:
    """Counts the Python functions that are called inside."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    def __enter__(self) -> Counter[str]:
        sys.setprofile(self._called)
        return self.by_name

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self.by_name.pop("Calls.__exit__", None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.by_name[frame.f_code.co_qualname] += 1


def test_a_record_takes_no_more_calls_than_it_did():
    # Without the network thread the same calls are counted every time.
    producer = without_thread(cluster_of([1, 2] * 6))
    told = 0

    def callback(metadata: RecordMetadata, error: object) -> None:
        nonlocal told
        told += error is None

    futures: list[RecordFuture] = []

    def send(rows: int) -> None:
        for n in range(rows):
            record = ProducerRecord("test", b"x" * 100, b"%012d" % n)
            futures.append(producer.send(record, callback))

    with Calls() as sent:
        send(ROWS)  # keys that are new are the dearest
    of_batches: dict[ProduceRequestResult, list[RecordFuture]] = defaultdict(list)
    for future in futures:
        of_batches[future._result].append(future)
    with Calls() as heard:
        for result, of_batch in of_batches.items():
            result.set(0, -1, None)
            result.run_callbacks(of_batch)
    assert told == ROWS
    assert sent.total() <= SENT * ROWS, sent.most_common(30)
    assert heard.total() <= TOLD * ROWS, heard.most_common(30)
    producer.close(0)
