"""``kprod size``: connections and memory of a write, before there is one.

Owns: the command, and the figures of a Python worker that were measured. Never: a broker, a Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import typer

from spark_kafka_sink.cli.show import print_json, show_rows

_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
#: Spark's units, "32m".
_UNITS: Final = {"": 1, "b": 1, "k": _KIB, "m": _MIB, "g": 1024 * _MIB}
#: Resident bytes of a Python worker with its libraries, without the buffer and the Arrow batches:
#: 114 to 183 MiB at thirteen settings (bench/HISTORY.md, "memory by settings").
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
    def connections_of_a_broker(self) -> int:
        """One of each task, and those of the driver, if its bootstrap server is this broker."""
        return self.tasks + 4

    @property
    def executors(self) -> int:
        return -(-self.tasks // self.cores)

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


def size(load: Load, *, as_json: bool) -> None:
    """The figures, and what each is made of."""
    if as_json:
        print_json(
            {
                "command": "size",
                "connections": load.connections,
                "driverConnections": load.driver_connections,
                "connectionsPerBroker": load.connections_of_a_broker,
                "executors": load.executors,
                "arrowBatchBytes": load.arrow_batch,
                "workerBytes": load.worker,
                "executorMemoryOverheadBytes": load.memory_overhead,
            }
        )
        return
    rows = (
        (
            "connections",
            f"{load.connections}",
            f"{load.tasks} tasks x {load.leaders} leaders; 2 more each if other brokers serve them",
        ),
        (
            "the driver's, at most",
            f"{load.driver_connections}",
            f"2 processes (plan, commit) x ({load.leaders} leaders + a bootstrap server)",
        ),
        (
            "of one broker, at most",
            f"{load.connections_of_a_broker}",
            "each task's, and the driver's 4",
        ),
        ("executors", f"{load.executors}", f"{load.tasks} tasks / {load.cores} at once"),
        (
            "a Python worker (RSS)",
            _mib(load.worker),
            (
                f"{_mib(_WORKER)} + kafka.buffer.memory {_mib(load.buffer_memory)}"
                f" + 2 Arrow batches of {_mib(load.arrow_batch)}; within 15 %"
            ),
        ),
        (
            "spark.executor.memoryOverhead",
            f"{-(-load.memory_overhead // _MIB)}m",
            (
                f"{load.cores} x (the worker + {_mib(_MARGIN)}) + Spark's daemon {_mib(_DAEMON)}"
                f" + the JVM's own {_mib(load.jvm_overhead)}"
            ),
        ),
    )
    show_rows("What a write takes", ("what", "figure", "how"), rows)


def memory(text: str) -> int:
    """Bytes of ``32m``, ``4g``, ``33554432``, as Spark writes them."""
    found = re.fullmatch(r"(\d+)([bkmg]?)b?", text.strip().lower())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size; write 32m, 4g or bytes")
    return int(found[1]) * _UNITS[found[2]]


def _mib(size: int) -> str:
    return f"{size / _MIB:.3g} MiB" if size < 10 * _MIB else f"{size // _MIB} MiB"
