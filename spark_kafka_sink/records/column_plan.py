"""Which column of a DataFrame is what: made once on the driver, used by every task.

Owns: :class:`ColumnPlan`. Never: Arrow or numpy. The processes in which Spark plans and commits
start cold again and again, and loading what only tasks need would cost each of them half a second.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """Which column of the incoming Arrow batches plays which part. Picklable; no Arrow inside.

    ``topic`` is the option (trimmed); when set, no topic column is read. The others are indices
    into the batch's columns, or None when the DataFrame has no such column. The types are read
    from each batch (Spark sends several Arrow types for one of its own).
    """

    topic: str | None = None
    value_column: int | None = None
    key_column: int | None = None
    topic_column: int | None = None
    headers_column: int | None = None
    partition_column: int | None = None
    timestamp_column: int | None = None
