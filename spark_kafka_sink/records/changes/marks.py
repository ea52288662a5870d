"""The kinds and the marks of changes, as numbers.

* A *kind* stands for an insert, an update, a delete, a preimage, or a change that can't be sent. A
  preimage is a row with the values from before an update.
* A *mark* is 0 for a change that becomes a record with a value, and 1 for a change that becomes a
  tombstone. Each higher mark stands for a reason why the change can't be sent. ``changed_rows``
  determines the marks.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.config.changelog import TIED, UNORDERED, Changelog
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Reason
from spark_kafka_sink.records.column_plan import ROW, TOMBSTONE, ColumnPlan
from spark_kafka_sink.records.json.plain_text import plain_binary

Int8s = npt.NDArray[np.int8]

#: What a row is, by its change type.
INSERT, UPDATE, DELETE, BEFORE, _UNKNOWN, _TIED, _UNORDERED = range(7)
#: Marks beside ROW and TOMBSTONE: why a row can't be sent.
_UNKNOWN_TYPE, NO_AFTER, NO_IMAGE, _TIED_LAST, _NO_ORDER, OLDER, NO_VALUE = range(2, 9)
MARK_OF_KIND: Final = np.array(
    [ROW, ROW, TOMBSTONE, TOMBSTONE, _UNKNOWN_TYPE, _TIED_LAST, _NO_ORDER], np.int8
)
_UPSERTS = (
    "write upserts(df, ...), which keeps the last change of each key; spark_kafka_sink has it, and"
    " a stream calls it in foreachBatch"
)
_WHOLE_FEED = (
    "pass the feed on as it was read, without a filter of change types or a repartition; or "
    + _UPSERTS
)
_NAME_TYPES = (
    "correct the option changelog, or filter such rows out: truncates, messages, and tombstones"
    " that Debezium has written"
)
_NAME_ORDER = (
    "give upserts an order_by that orders the changes of a key; are keys the table's primary key?"
)
#: Of each mark: the reason, the sentence, and the hint.
_PROBLEMS: Final = {
    _UNKNOWN_TYPE: (
        Reason.CHANGE_TYPE,
        "a change type that the changelog does not have, or null; it has {types}",
        _NAME_TYPES,
    ),
    NO_AFTER: (
        Reason.CHANGE_PAIR,
        "the row before an update, and the row after it is not the next one of the task",
        _WHOLE_FEED,
    ),
    NO_IMAGE: (
        Reason.CHANGE_PAIR,
        "{after} of an insert or update, or {before} of a delete, is null",
        "let the source log whole rows (REPLICA IDENTITY in PostgreSQL)",
    ),
    _TIED_LAST: (
        Reason.CHANGE_ORDER,
        "two last changes of one key differ and have the same position, so none is the last",
        _NAME_ORDER,
    ),
    _NO_ORDER: (
        Reason.CHANGE_ORDER,
        "a change whose position in the order is null",
        "give upserts an order_by that is never null",
    ),
    OLDER: (
        Reason.CHANGE_ORDER,
        "an older change of a key comes after a newer one, and would replace it",
        _UPSERTS,
    ),
    NO_VALUE: (
        Reason.NULL_VALUE,
        "the value of an insert or update is null, and would delete its key as a tombstone does",
        "set valueColumns=* and valueFormat=json or a format with a schema, or filter such rows",
    ),
}


def kinds_of(types: pa.Array, log: Changelog) -> Int8s:
    """The kind of each change, as a number. ``types`` is the feed's column with the types of
    changes, such as ``insert``. A null, and a type that ``log`` does not have, get the kind for
    unknown types.
    """
    of = (log.inserts, log.updates, log.deletes, log.preimages, (), (TIED,), (UNORDERED,))
    known = [(name, kind) for kind, names in enumerate(of) for name in names]
    if not (pa.types.is_string(types.type) or pa.types.is_large_string(types.type)):
        types = plain_binary(types).cast(pa.large_string())
    names = pa.array([name for name, _ in known], types.type)
    # The last one is that of -1.
    table = np.array([*(kind for _, kind in known), _UNKNOWN], np.int8)
    found = pc.index_in(types, names)
    kinds: Int8s = table.take((found.fill_null(-1) if found.null_count else found).to_numpy())
    return kinds


def note_changes(batch: pa.RecordBatch, plan: ColumnPlan, bad: BadRows) -> None:
    """Adds to ``bad`` the rows of ``batch`` whose change can't be sent, each with the reason. The
    column of marks in ``batch`` has the reason as a number. Does nothing if the rows of ``batch``
    do not come from a change feed.

    If ``bad.raises`` is true, this function adds no rows. It raises DataError for one of the rows
    whose change can't be sent.
    """
    changes = plan.changes
    if changes is None:
        return
    marks = batch.column(changes.marks).to_numpy()
    if not len(marks) or marks.max() <= TOMBSTONE:
        return
    log = changes.changelog
    before, after = log.images or ("the row before", "the row after")
    types = safe_text(", ".join(log.types), 200)
    for mark, (reason, text, hint) in _PROBLEMS.items():
        said = text.format(types=types, before=before, after=after)
        bad.refuse(marks == mark, reason, said, safe_text(log.column, 200), hint)
