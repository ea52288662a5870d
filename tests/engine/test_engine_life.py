"""A producer's life: slow writers, threads, forks, interrupts, warm reuse, leaks, idle cost."""

from __future__ import annotations

import gc
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType

import psutil
import pytest

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, send, values_batch
from tests.programs import run_python
from tests.real_kafka import AT_ONCE_S

THREAD_NAME = "kafka-producer-network-thread"


def network_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith(THREAD_NAME)]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def values_of(topic: str) -> ColumnPlan:
    return ColumnPlan(topic, value_column=0)


# ---- slow writers --------------------------------------------------------------------------------


class Watcher:
    """A consumer in a thread of its own, which notes when each row became visible."""

    def __init__(self, bootstrap: str, topic: str, rows: int) -> None:
        self.seen: dict[bytes, float] = {}
        self._stop = threading.Event()
        self._assigned = threading.Event()
        self._arguments = (bootstrap, topic, rows)
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watcher:
        self._thread.start()
        assert self._assigned.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        self._stop.set()
        self._thread.join(60)

    def _watch(self) -> None:
        from confluent_kafka import Consumer, TopicPartition

        bootstrap, topic, rows = self._arguments
        options = {"group.id": "watch", "enable.auto.commit": False, "fetch.wait.max.ms": 50}
        consumer = Consumer({"bootstrap.servers": bootstrap, **options})
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            self._assigned.set()
            while len(self.seen) < rows and not self._stop.is_set():
                for message in consumer.consume(100, timeout=0.05):
                    assert message.error() is None, message.error()
                    self.seen.setdefault(message.value(), time.monotonic())
        finally:
            consumer.close()


@pytest.mark.timing
@pytest.mark.parametrize(
    ("linger_ms", "waits", "bound_s"),
    [(5, True, 1.005), (1000, True, 2.0), (5, False, 2.5)],
    ids=["short linger", "long linger", "busy"],
)
def test_rows_that_trickle_in_are_visible_soon(kafka, linger_ms, waits, bound_s):
    """One row in 100 ms: no wait for the next one is ever as long as a linger of a second, and a
    busy writer waits for none.
    """
    topic = kafka.unique_topic("trickle")
    rows = [b"row %d" % i for i in range(30)]
    producer = KafkaProducer(config(kafka.bootstrap, {"linger.ms": linger_ms}))
    attempt(producer, values_of(kafka.unique_topic("warm")), [values_batch([b"warm"])])
    sent: dict[bytes, float] = {}
    producer.start_attempt()
    with Watcher(kafka.bootstrap, topic, len(rows)) as watcher:
        for row in rows:
            with producer.waiting_for_input() if waits else nullcontext():
                threading.Event().wait(0.1)
            sent[row] = time.monotonic()
            send(producer, values_of(topic), [values_batch([row])])
        in_time = len(watcher.seen)
        with producer.waiting_for_input():
            threading.Event().wait(linger_ms / 1000 + 1)
    producer.finish_attempt()
    producer.close(10_000)
    assert in_time > 0, "nothing was visible while the writer went on"
    assert max(watcher.seen[row] - sent[row] for row in rows) < bound_s


# ---- threads, forks, interrupts ------------------------------------------------------------------


def test_two_producers_in_two_threads_keep_to_themselves(kafka, consume):
    topic = kafka.unique_topic("two", 3)
    failures: list[BaseException] = []

    def work(name: bytes) -> None:
        try:
            producer = KafkaProducer(config(kafka.bootstrap, {"compression.type": "lz4"}))
            rows = [b"%s%06d" % (name, i) for i in range(20_000)]
            pieces = (values_batch(rows[i : i + 700]) for i in range(0, len(rows), 700))
            report = attempt(producer, values_of(topic), pieces)
            producer.close(10_000)
            assert report.rows == len(rows)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(name,)) for name in (b"a", b"b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    found = sorted(consume(topic).values)
    assert found == [b"%s%06d" % (name, i) for name in (b"a", b"b") for i in range(20_000)]


def test_a_fork_can_not_use_the_producer_and_its_owner_still_can(kafka, consume):
    topic = kafka.unique_topic("fork")
    producer = KafkaProducer(config(kafka.bootstrap))
    attempt(producer, values_of(topic), [values_batch([b"before"])])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"it worked"
        try:
            producer.start_attempt()
        except IllegalStateError as error:
            told = str(error).encode()
        finally:
            producer.close()
            os.write(write, told)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(child, 0)
    assert f"this producer was made in process {os.getpid()}, not in {child}" in told
    attempt(producer, values_of(topic), [values_batch([b"after"])])
    producer.close(10_000)
    assert consume(topic).values == [b"before", b"after"]


@contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """KeyboardInterrupt in this thread, wherever it then is; another one every five seconds, since
    Python swallows those that come in a finaliser.
    """

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:  # the first one may come before the next line
        signal.setitimer(signal.ITIMER_REAL, seconds, 5.0)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings(  # one that came in a finaliser
    "ignore:(?s).*KeyboardInterrupt:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_interrupt_leaves_no_thread_no_socket_and_no_gap(kafka, consume, codec):
    """At 12 moments between metadata and flush, with memory short so that it may block too."""
    gc.collect()
    files, threads = open_files(), len(network_threads())
    rng = random.Random(codec)
    options = {"buffer.memory": 300_000, "batch.size": 30_000, "compression.type": codec}
    landed = 0
    topics = [kafka.unique_topic("interrupt") for _ in range(12)]
    for topic in topics:
        producer = KafkaProducer(config(kafka.bootstrap, options))
        producer.start_attempt()
        deadline = time.monotonic() + 60
        try:
            with interrupted_after(rng.uniform(0.001, 0.15)):
                for first in itertools.count(0, 50):
                    assert time.monotonic() < deadline, "no interrupt came out"
                    rows = [b"%08d" % i + rng.randbytes(500) for i in range(first, first + 50)]
                    send(producer, values_of(topic), [values_batch(rows)])
                    if rng.random() < 0.1:
                        producer.flush()
        except KeyboardInterrupt:
            landed += 1
        finally:
            began = time.monotonic()
            producer.close(0)
            assert time.monotonic() - began < AT_ONCE_S
    assert landed == len(topics)
    assert (open_files(), len(network_threads())) == (files, threads)
    for topic in topics[::3]:
        rows = [int(value[:8]) for value in consume(topic).values]
        assert rows == list(range(len(rows)))


class InterruptAt:
    """A profile function: KeyboardInterrupt at the nth point where CPython looks for signals.

    Those are the start of a Python function and the return of a C function. 0: only count.
    """

    def __init__(self, point: int) -> None:
        self.point = point
        self.points = 0

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        # Only our own code (what is raised while Arrow calls Python, or in a generator that is
        # being closed, is swallowed, and no lock of ours is taken there) and the locks'.
        code = frame.f_code
        ours = "spark_kafka_sink" in code.co_filename or "threading" in code.co_filename
        if event in ("call", "c_return") and ours and code.co_name != "<genexpr>":
            self.points += 1
            if self.points == self.point:
                sys.setprofile(None)
                raise KeyboardInterrupt


@pytest.mark.long
def test_an_interrupt_at_any_call_leaves_nothing_locked(kafka):
    """A lock that is left held shows as a network thread that does not end."""
    topic = kafka.unique_topic("interrupt")
    options = {"buffer.memory": 300_000, "batch.size": 30_000}
    rng = random.Random(1)
    rows = [rng.randbytes(500) for _ in range(100)]

    def run(point: int) -> int:
        interrupt = InterruptAt(point)
        producer = KafkaProducer(config(kafka.bootstrap, options))
        producer.start_attempt()
        outcome: BaseException | None = None
        sys.setprofile(interrupt)
        try:
            send(producer, values_of(topic), [values_batch(rows)])
            producer.flush()
        except BaseException as error:
            outcome = error
        finally:
            sys.setprofile(None)
            began = time.monotonic()
            producer.close(0)
        assert time.monotonic() - began < AT_ONCE_S, (
            f"close hung after an interrupt at point {point}"
        )
        if interrupt.points >= point > 0:
            assert isinstance(outcome, KeyboardInterrupt), (point, outcome)
        else:
            assert outcome is None, outcome
        return interrupt.points

    points = run(0)
    assert points > 420, points
    for point in sorted(rng.sample(range(1, points), 400)):
        run(point)
    assert network_threads() == []


# ---- warm reuse ----------------------------------------------------------------------------------


def test_200_attempts_leave_threads_files_and_memory_unchanged(kafka):
    topic = kafka.unique_topic("leaks", 4)
    producer = KafkaProducer(config(kafka.bootstrap, {"compression.type": "lz4"}))
    process = psutil.Process()
    rows = values_batch([b"%0200d" % i for i in range(2000)])

    def state() -> tuple[int, int, int]:
        gc.collect()
        return open_files(), threading.active_count(), process.memory_info().rss

    states = []
    for number in range(1, 201):
        attempt(producer, values_of(topic), [rows])
        producer.park()
        if number in (62, 108, 154, 200):
            states.append(state())
    producer.close(10_000)
    assert states[-1][:2] == states[0][:2]
    # What leaks grows in each of three thirds; an allocator may take some more at once.
    memory = [resident for _, _, resident in states]
    grown = [after - before for before, after in itertools.pairwise(memory)]
    assert min(grown) < 8 * 1024 * 1024 / 3, grown


# ---- what it costs -------------------------------------------------------------------------------


def cpu_seconds(thread: threading.Thread) -> float:
    """Of one thread, by the kernel's count (in ticks of 10 ms)."""
    stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.timing
def test_idle_parked_and_stalled_producers_use_almost_no_cpu(own_kafka):
    """Over two seconds each; the stalled one has a writer that waits for memory, and a broker that
    is frozen with requests in flight."""
    topic = own_kafka.unique_topic("idle", 3)
    options = {"buffer.memory": 1_000_000, "request.timeout.ms": 30_000}
    producer = KafkaProducer(config(own_kafka.bootstrap, options))
    attempt(producer, values_of(topic), [values_batch([b"x"])])

    def cost() -> float:
        before = cpu_seconds(producer._thread)
        threading.Event().wait(2)
        return cpu_seconds(producer._thread) - before

    idle = cost()
    producer.park()
    parked = cost()

    rows = values_batch([b"%0200d" % i for i in range(50_000)])
    done = threading.Event()

    def write() -> None:
        attempt(producer, values_of(topic), [rows])
        done.set()

    (node,) = own_kafka.nodes
    node.freeze()
    try:
        writer = threading.Thread(target=write)
        writer.start()
        threading.Event().wait(0.5)
        stalled = cost()
        assert not done.is_set()
    finally:
        node.thaw()
    writer.join(60)
    assert done.is_set()
    producer.close(10_000)
    assert max(idle, parked, stalled) <= 0.05, (idle, parked, stalled)


@pytest.mark.long
def test_memory_stays_within_its_bound_over_two_gigabytes(own_kafka):
    """Sampled from outside; base + buffer.memory + 2 Arrow batches + 64 MiB (rule R5)."""
    from confluent_kafka.admin import AdminClient

    configs = {"retention.bytes": "500000000", "segment.bytes": "100000000"}
    topic = own_kafka.unique_topic("memory", 4, configs)
    where = ("--bootstrap", own_kafka.bootstrap, "--topic", topic)
    done = run_python("-m", "bench.memory", *where, "--gigabytes", "2", timeout=400)
    told = json.loads(done.stdout)
    admin = AdminClient({"bootstrap.servers": own_kafka.bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    assert told["peak"] <= told["bound"], told
