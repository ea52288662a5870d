"""The sums of docs/tuning.md and docs/clusters.md: connections and memory of a planned write.

``test_size_of_a_worker.py`` compares them with a real worker, ``docs/test_sums_of_a_write.py`` with
the pages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
#: Spark's units, "32m".
_UNITS: Final = {"": 1, "b": 1, "k": _KIB, "m": _MIB, "g": 1024 * _MIB}
#: Resident bytes of a Python worker with its libraries, without the buffer and the Arrow batches:
#: 114 to 183 MiB at thirteen settings (bench/HISTORY.md, "Memory by settings").
_WORKER: Final = 150 * _MIB
#: Spark's daemon, from which an executor's workers are forked.
_DAEMON: Final = 60 * _MIB
#: What a task may have in addition to its buffer and its Arrow batches (rule R5 of DESIGN.md).
_MARGIN: Final = 64 * _MIB
#: Spark's own spark.executor.memoryOverheadFactor and spark.executor.minMemoryOverhead.
_JVM_FACTOR: Final = 0.1
_JVM_LEAST: Final = 384 * _MIB


@dataclass(frozen=True, slots=True)
class Load:
    """What is written, and with what. Sizes are bytes.

    ``tasks`` run at once, ``cores`` of them in an executor. ``arrow_bytes`` bounds an Arrow batch;
    0 does not.
    """

    tasks: int
    leaders: int
    cores: int = 4
    executor_memory: int = 4096 * _MIB
    buffer_memory: int = 32 * _MIB
    row_bytes: int = 1000
    arrow_rows: int = 10_000
    arrow_bytes: int = 64 * _MIB

    @property
    def connections(self) -> int:
        """Of all tasks: each has a producer, which connects to each leader. Two more each, at most,
        where its bootstrap server and its transaction's coordinator lead nothing of the topic.
        """
        return self.tasks * self.leaders

    @property
    def driver_connections(self) -> int:
        """At most, with exactly-once: a process plans and one commits, and each connects to a
        bootstrap server and to each broker that it needs.
        """
        return 2 * (self.leaders + 1)

    @property
    def arrow_batch(self) -> int:
        """Bytes of one: a batch ends with the row that reaches either bound."""
        size = self.arrow_rows * self.row_bytes
        return min(size, self.arrow_bytes + self.row_bytes) if self.arrow_bytes else size

    @property
    def worker(self) -> int:
        """Resident bytes of a task's Python worker when brokers are slower than it, within 15 %."""
        return _WORKER + self.buffer_memory + 2 * self.arrow_batch

    @property
    def jvm_overhead(self) -> int:
        """What Spark itself would set as spark.executor.memoryOverhead, for the JVM."""
        return max(_JVM_LEAST, int(self.executor_memory * _JVM_FACTOR))

    @property
    def memory_overhead(self) -> int:
        """spark.executor.memoryOverhead: Python in addition to the JVM's."""
        return self.jvm_overhead + _DAEMON + self.cores * (self.worker + _MARGIN)


def memory(text: str) -> int:
    """Bytes of ``32m``, ``4g``, ``33554432``, as Spark writes them."""
    found = re.fullmatch(r"(\d+)([bkmg]?)b?", text.strip().lower())
    assert found is not None, text
    return int(found[1]) * _UNITS[found[2]]
