"""Describes a write in a short text for a report: the cause of a failure, or the longest wait of
the tasks.

The table :data:`WAITS` has the fields of a report that contain waits, and advice for each wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.base.documentation import RUNBOOK_PAGE, page_address

#: By the field with the length of the wait, in ms: the reason of the wait, and the things to check.
WAITS: Final = {
    "inputWaitMs": (
        "Spark's next rows",
        "Spark reads, joins or shuffles before the write: see its UI",
    ),
    "bufferWaitMs": (
        "memory, because brokers took less than Spark gave",
        "brokers (their meanLatencyMs), throttleMs, retries",
    ),
    "rateWaitMs": (
        "maxRecordsPerSecond or maxBytesPerSecond",
        "these options, and tasksAtOnce",
    ),
    "metadataWaitMs": ("the metadata of a topic", "kprod check -t TOPIC"),
    "brokerWaitMs": (
        "acknowledgements after the last row",
        "brokers (their meanLatencyMs and lastAnswer), throttleMs, retries",
    ),
}


def explained(report: Mapping[str, object]) -> str:
    """Describes a write in a short text. ``report`` is a report's JSON as a dictionary. If the
    write failed, the text has the cause and the remedy. If the write succeeded, the text has the
    longest wait of the tasks, and names the places to look for the cause of this wait.
    """
    error = report.get("error")
    if not isinstance(error, Mapping):
        return _longest_wait(report)
    hint = f" What to do: {error['hint']}." if error.get("hint") else ""
    code = error.get("code")
    return f"{code}: {error.get('message')}.{hint} More: kprod explain {code}"


def _longest_wait(report: Mapping[str, object]) -> str:
    waits = {name: ms for name in WAITS if isinstance(ms := report.get(name), int)}
    name = max(waits, key=lambda one: waits[one], default=None)
    if name is None or waits[name] == 0:
        return "No task waited for anything."
    what, where = WAITS[name]
    return (
        f"Tasks waited most for {what}: {name} is {waits[name]} of {sum(waits.values())} ms of"
        f" waiting, summed over tasks. Look at: {where}."
        f" More: {page_address(RUNBOOK_PAGE, 'a-job-is-slow')}"
    )
