"""docs/upstream-behaviours.md: what Kafka's own test suites check of the producer, and our tests.

Owns: the list of behaviours, those that do not apply here with the reason, and finding the tests,
whose docstrings say "Behaviour 12." or "Behaviours 12, 14 to 16.". Run by generate_docs.py, which
fails on a behaviour that has neither test nor reason, and on a number that is not in the list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: Group (with the suites of Apache Kafka that it stems from) and behaviours.
BEHAVIOURS: dict[str, dict[int, str]] = {
    "Vectors": {
        1: "murmur2: the Java client's vectors, and the sum over its random arrays",
        2: "murmur2: librdkafka's vectors",
        3: "a key's partition is (hash & 0x7fffffff) % count, over all partitions",
        4: "CRC-32C vectors",
        5: "signed varints of 32 and 64 bits; one byte too many is refused",
        6: "unsigned varints",
        7: "a whole batch as another client writes it: length and checksum",
        8: "a whole batch of ours, byte by byte",
        9: "sequences wrap at 2^31",
    },
    "Records and batches (DefaultRecordBatchTest, DefaultRecordTest, MemoryRecordsBuilderTest)": {
        10: "a wrong checksum, a batch below its header's size, a wrong count are refused",
        11: "header keys are not null, header values may be; sizes past the end are refused",
        12: "producer fields that contradict each other are refused",
        13: "the maximal timestamp is the largest, not the last; none lies before 1970",
        14: "nothing encodes to nothing; a closed batch takes no more",
        15: "the first record always fits, the others while there is room",
        16: "the estimate of a compressed size, and how its ratio moves",
    },
    "Configuration and send (KafkaProducerTest, ProducerConfigTest)": {
        17: "every rule between options, with its message",
        18: "an unknown topic or partition blocks for max.block.ms and says what brokers said",
        19: "the waits for metadata and for memory share one max.block.ms",
        20: "a record that can't be sent makes its transaction abortable",
        21: "a partition joins the transaction after the append; headers can't be changed later",
    },
    "BufferPool (BufferPoolTest)": {
        22: "memory comes back and is used again",
        23: "more than there is at all is refused at once, all of it is not",
        24: "a waiter is served by what others give back, piece by piece",
        25: "a wait ends in time, leaves the line and gives back what it gathered",
        26: "an interrupted wait leaves nothing behind",
        27: "first in, first out",
        28: "close wakes all; large totals; many threads leave the total as it was",
    },
    "RecordAccumulator (RecordAccumulatorTest)": {
        29: "a full batch makes its leader ready before linger.ms is over",
        30: "not ready before linger.ms, ready at linger.ms",
        31: "the next check is when the first lingering or backing off batch is due",
        32: "a record above batch.size gets a batch of its own",
        33: "at most one batch of a partition in a drain",
        34: "a drain ends at max.request.size, but for one batch alone",
        35: "the next drain begins behind the last one",
        36: "a muted partition is neither ready nor drained",
        37: "waiters, flush, close and a completing transaction make everything sendable",
        38: "the backoff of a retry, from its last attempt, delays no other partition",
        39: "a newer leader ends the backoff of that attempt",
        40: "a retry goes to the head, in the order of sequences",
        41: "a retry without a sequence, or untracked, is a bug under idempotence",
        42: "expiry: at delivery.timeout.ms, oldest first",
        43: "the next expiry bounds the poll",
        44: "a split keeps age, headers, codec and futures, and goes to the head in order",
        45: "splitting ends at single records",
        46: "few batches are split when compressibility is mixed",
        47: "flush waits for what exists, and for all that is split from it",
        48: "abort fails all (or all undrained) and gives memory back",
        49: "a partition without a leader asks for metadata, if it has data",
        50: "many writers on little memory lose nothing",
        51: "sticky pieces leave no fractions of batches",
    },
    "ProducerBatch (ProducerBatchTest)": {
        52: "a batch ends once; callbacks run once, in order",
        53: "errors of single records reach their futures",
        54: "a clock that goes back expires nothing",
        55: "a leader change counts for the attempt that saw it",
    },
    "Partitioner (BuiltInPartitionerTest)": {
        56: "a sticky partition changes when enough went there",
        57: "partitions without a leader are chosen only when all lack one",
        58: "queue sizes make frequencies",
        59: "a node that takes nothing for too long is left out",
        60: "rack aware: the local leaders, if there are any",
    },
    "Sender (SenderTest)": {
        61: "a disconnect is a retry, up to the limit",
        62: "with one in flight the second waits, also over a retry",
        63: "acks=0 completes when written, without an offset",
        64: "nothing leaves before there is a producer id",
        65: "five in flight, the sixth waits",
        66: "after a failed first, the others are resent in order",
        67: "answers out of order end well",
        68: "a duplicate is a success",
        69: "UNKNOWN_PRODUCER_ID",
        70: "what expired unsent leaves no doubt, what expired in flight does",
        71: "how a doubt ends",
        72: "a batch that failed for good, and the sequences behind it",
        73: "an epoch bump",
        74: "too large with several records: two batches at the sequences of the one",
        75: "too large with one record, or too old: it fails",
        76: "what expires in flight gives its memory back when its answer comes",
        77: "what expires in flight is settled before the next goes",
        78: "a hint of the new leader is followed at once; without one metadata is asked",
        79: "errors reach each record with their message",
        80: "after a fatal error nothing more is sent",
        81: "commit sends all and ends last; abort drops what was not sent",
        82: "close sends the rest and aborts a transaction; a forced one can't hang",
        83: "no spin while something waits; one poll in a round",
    },
    "TransactionManager (TransactionManagerTest)": {
        84: "the order of requests, one at a time",
        85: "send before init or begin, and a second init, are refused",
        86: "TV1: a partition is drained after AddPartitionsToTxn",
        87: "TV2: no AddPartitionsToTxn, Produce 12 and EndTxn 5",
        88: "a transaction without partitions ends here",
        89: "EndTxn waits for batches and partitions",
        90: "the backoff of CONCURRENT_TRANSACTIONS",
        91: "a coordinator that moves or is lost is found again",
        92: "a fenced producer is lost",
        93: "an old epoch or a wrong state in a Produce answer is abortable",
        94: "a wrong state in AddPartitionsToTxn or EndTxn is fatal",
        95: "a topic that may not be written",
        96: "an abortable error, the abort, and on",
        97: "an abort sends pending retries first",
        98: "TRANSACTION_ABORTABLE",
        99: "a failed batch forbids the commit",
        100: "a call that timed out may be repeated, its opposite not",
        101: "an expired batch forbids the commit",
        102: "TV2: the next epoch comes with EndTxn; the last one brings a new id",
        103: "a change from TV1 to TV2 in the middle",
        104: "an illegal move is fatal on the network thread, not on the caller's",
    },
    "Coordinator, for the fake broker (TransactionCoordinatorTest)": {
        105: "both tables of EndTxn, retries, time-outs and fences",
    },
    "Network (NetworkClientTest, ClusterConnectionStatesTest)": {
        106: "when a node is not ready, and that nothing is sent to it then",
        107: "ApiVersions: the newest first, and how it goes lower",
        108: "a connection that never gets ready ends",
        109: "a request's time-out ends its connection and all its requests in order",
        110: "throttling",
        111: "the least loaded node",
        112: "the backoffs of connecting",
        113: "addresses in turn",
        114: "a failed authentication is remembered",
        115: "rebootstrap, by each of its causes",
        116: "no common version: nothing on the wire; correlation ids keep off SASL's",
    },
    "Metadata (MetadataTest, ProducerMetadataTest)": {
        117: "leader epochs never go back, but for a new topic id",
        118: "a partial or outdated answer leaves the wish for a full one",
        119: "backoff of failed and equivalent answers; maximal age and idle time",
        120: "when a hint is not taken; a topic's error is its users' alone",
    },
    "Selector (SelectorTest)": {
        121: "one send at a time, one answer in a poll; large, partial and empty ones",
        122: "idle connections",
        123: "what arrived before the end is handed out; refused and doubled connections",
    },
}

#: Why a behaviour, or a part of one, is not here. A test may show what happens instead.
NOT_HERE = {
    72: "no sequence is ever rewritten: what is behind the batch fails with it (design rule 5.2)",
    73: "no epoch bump: a new producer id, when nothing of the old one is in flight any more",
}

_NUMBERS = re.compile(r"\b[Bb]ehaviours? ((?:\d+|,|and|to|\s)+)")


def page_lines() -> Iterator[str]:
    """The page, but for its head."""
    tests = _tests_by_number()
    yield "What the test suites of Apache Kafka's Java producer check, and the tests here that show"
    yield "it. The numbers stand in the tests' docstrings."
    for group, behaviours in BEHAVIOURS.items():
        yield from ("", f"## {group}", "", "| # | behaviour | shown by |", "|---|---|---|")
        for number, text in behaviours.items():
            shown = ", ".join(f"`{name}`" for name in sorted(tests.get(number, ())))
            reason = NOT_HERE.get(number)
            if reason is not None:
                shown = f"not here: {reason}" + (f" ({shown})" if shown else "")
            yield f"| {number} | {text} | {shown} |"


def problems() -> list[str]:
    """Behaviours without test and reason, and numbers that are none."""
    known = {number for behaviours in BEHAVIOURS.values() for number in behaviours}
    tests = _tests_by_number()
    missing = sorted(known - tests.keys() - NOT_HERE.keys())
    unknown = sorted(tests.keys() - known)
    return [
        *(f"behaviour {number} has neither a test nor a reason" for number in missing),
        *(f"{', '.join(tests[n])}: there is no behaviour {n}" for n in unknown),
    ]


def _tests_by_number() -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in numbers_in(ast.get_docstring(node) or ""):
                    found.setdefault(number, set()).add(node.name)
    return found


def numbers_in(text: str) -> set[int]:
    """``Behaviours 3, 5 to 7 and 9`` are 3, 5, 6, 7, 9."""
    numbers: set[int] = set()
    for match in _NUMBERS.finditer(text):
        for first, last in re.findall(r"(\d+)(?:\s+to\s+(\d+))?", match[1]):
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers
