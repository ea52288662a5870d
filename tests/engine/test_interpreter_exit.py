"""Scripts that end without ``close``: their queued records are sent before the interpreter exits,
and one warning counts the records that were not.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from tests.programs import ROOT, run_python
from tests.real_kafka import Consumed, RealKafka
from tests.waiting import PATIENCE

#: Begins each script: a producer, and the topic of its records.
_BEGIN = """
import atexit, contextlib, logging, multiprocessing, os, sys, threading
from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.errors import KafkaError
bootstrap, topic = sys.argv[1:]
def made(**options):
    return KafkaProducer(
        {"bootstrap.servers": bootstrap, "linger.ms": "60000"}
        | {name.replace("_", "."): value for name, value in options.items()}
    )
def delete_topic(known_to):
    # Its records are refused until delivery.timeout.ms is over, and then fail.
    from confluent_kafka.admin import AdminClient
    for one in known_to:
        one.partitions_for(topic)
    # On a busy machine librdkafka writes of events that it drops at the exit.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
def fill(producer, records, value=b"v"):
    for _ in range(records):
        producer.send(ProducerRecord(topic, value))
"""
Read = Callable[..., Consumed]


def _run(kafka: RealKafka, topic: str, script: str) -> str:
    """What ``script`` printed to standard error, without the warnings of retries (KP1003)."""
    printed = run_python("-c", _BEGIN + script, kafka.bootstrap, topic).stderr
    return "".join(line for line in printed.splitlines(True) if "[KP1003] retrying" not in line)


def test_a_script_without_close_sends_its_queue(kafka: RealKafka, consume: Read):
    topic = kafka.unique_topic()
    script = "first, second = made(), made()\nfill(first, 1000)\nfill(second, 10)\nraise SystemExit"
    assert _run(kafka, topic, script) == ""
    assert len(consume(topic)) == 1010


def test_threads_that_go_on_after_main_send_theirs(kafka: RealKafka, consume: Read):
    topic = kafka.unique_topic()
    script = """
producer = made()
def after_main():
    threading.main_thread().join()
    fill(producer, 20)
threading.Thread(target=after_main).start()
"""
    assert _run(kafka, topic, script) == ""
    assert len(consume(topic)) == 20


def test_children_send_what_is_theirs_and_once(kafka: RealKafka, consume: Read):
    topic = kafka.unique_topic()
    script = """
inherited = made()
fill(inherited, 100, b"parent")
def work(value):
    global own  # else it ends with the call
    own = made()
    fill(own, 10, value)
child = os.fork()
if child == 0:
    work(b"fork")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
worker = multiprocessing.get_context("fork").Process(target=work, args=(b"multiprocessing",))
worker.start()
worker.join()
assert worker.exitcode == 0
"""
    assert _run(kafka, topic, script) == ""
    values = Counter(consume(topic).values)
    assert values == {b"parent": 100, b"fork": 10, b"multiprocessing": 10}


def test_records_that_can_not_be_sent_are_counted_once(kafka: RealKafka):
    """The records are sent by a function of atexit, which runs right before the flush: a slow
    exit can not fail them earlier, when they are not counted.
    """
    delivery_ms, request_ms = int(3_000 * PATIENCE), int(2_500 * PATIENCE)
    script = f"""
early = dict(delivery_timeout_ms={delivery_ms}, request_timeout_ms={request_ms}, linger_ms="0")
producers = [made(**early) for _ in (1, 2)]
delete_topic(producers)
atexit.register(fill, producers[0], 3)
atexit.register(fill, producers[1], 4)
"""
    (line,) = _run(kafka, kafka.unique_topic(), script).splitlines()
    assert "7 records were not sent before the interpreter exited" in line
    assert "UNKNOWN_TOPIC_OR_PARTITION" in line
    assert "KP0506" in line


#: ``close`` on a thread that ends with the interpreter. Its error at Ctrl-C is not what is tested.
_CLOSES = """
def close():
    with contextlib.suppress(KafkaError):
        producer.close()
threading.Thread(target=close, daemon=True).start()
while not producer._lifecycle.closed:
    pass
"""


@pytest.mark.parametrize("closes", ["", _CLOSES], ids=["no close", "a close on a daemon thread"])
def test_an_exit_waits_until_ctrl_c(kafka: RealKafka, closes: str):
    script = """
logging.basicConfig(level=logging.INFO, format="%(message)s")
producer = made()
delete_topic([producer])
fill(producer, 5)
"""
    program = _BEGIN + script + closes
    command = [sys.executable, "-c", program, kafka.bootstrap, kafka.unique_topic()]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "sending 5 records before the interpreter exits; Ctrl-C ends it" in line:
                process.send_signal(signal.SIGINT)
        assert process.wait(30 * PATIENCE) == 0
    assert "5 records were not sent before the interpreter exited" in seen[-1]


def test_an_open_transaction_is_aborted_and_counted(kafka: RealKafka, consume: Read):
    topic = kafka.unique_topic()
    script = """
producer = made(transactional_id=topic)
producer.init_transactions()
producer.begin_transaction()
fill(producer, 6)
producer.flush()
fill(producer, 2)
"""
    (line,) = _run(kafka, topic, script).splitlines()
    assert "8 records were not sent before the interpreter exited" in line
    assert len(consume(topic, isolation="read_committed")) == 0


def test_idle_producers_do_not_delay_the_exit(kafka: RealKafka):
    """Neither a warm one with a prepared transaction, which belongs to the driver."""
    topic = kafka.unique_topic()
    script = """
import atexit
atexit.register(lambda: print([one._lifecycle.closed for one in warm]))  # runs after ours
warm = [made(), made(transactional_id=topic)]
warm[1].init_transactions()
warm[1].begin_transaction()
for one in warm:
    fill(one, 1)
    one.flush()
warm[1].prepare()
"""
    done = run_python("-c", _BEGIN + script, kafka.bootstrap, topic)
    assert (done.stdout, done.stderr) == ("[False, False]\n", "")
