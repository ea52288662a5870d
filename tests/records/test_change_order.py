"""Which changes of an Arrow batch come after a later change of their key, against a plain loop."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.changes.change_order import (
    _hashes,
    _may_be_twice,
    older_changes,
)
from spark_kafka_sink.records.changes.marks import BEFORE, DELETE, INSERT, UPDATE
from spark_kafka_sink.records.column_plan import OrderColumn

RANKS = {INSERT: 2, UPDATE: 2, DELETE: 1, BEFORE: 0}


#: Three keys with one hash.
RIVALS = [int(key) for key in (_hashes(np.arange(400_000)) == 7).nonzero()[0][:3]]
KEYS = st.sampled_from([0, -1, 1, 2**62, -(2**63), 2**63 - 1, *RIVALS])
ROW = st.tuples(
    KEYS, st.integers(0, 4), st.sampled_from(sorted(RANKS)), st.integers(0, 2), st.booleans(),
    st.booleans(),
)  # fmt: skip


def plain(rows, by_kind):
    latest, found = {}, []
    for key, version, kind, mark, has_key, dropped in rows:
        counts = has_key and mark < 2 and not dropped
        place = (version, RANKS[kind] if by_kind else 0)
        found.append(counts and place < latest.get(key, place))
        if counts:
            latest[key] = max(place, latest.get(key, place))
    return found


@given(st.lists(ROW, max_size=30), st.booleans())
def test_older_changes_are_those_of_a_plain_loop(rows, by_kind):
    columns = list(zip(*rows, strict=True)) or [()] * 6
    keys, versions, kinds, marks, has_key, dropped = (np.array(one) for one in columns)
    batch = pa.RecordBatch.from_arrays([pa.array(versions, pa.int64())], names=["v"])
    found = older_changes(
        batch,
        (OrderColumn(0),),
        kinds.astype(np.int8),
        marks.astype(np.int8),
        lambda: (keys.astype(np.int64), has_key.astype(bool)),
        dropped.astype(bool),
        by_kind=by_kind,
    )
    assert found.tolist() == plain(rows, by_kind)


def test_most_keys_that_occur_once_are_not_looked_at():
    keys = np.random.default_rng(1).integers(-(2**63), 2**63, 10_000)
    assert _may_be_twice(keys).mean() < 0.2
    assert not _may_be_twice(np.arange(10_000)).any()
    assert _may_be_twice(np.array([5, 6, 5])).tolist()[::2] == [True, True]
    assert len(RIVALS) == 3
    assert _may_be_twice(np.array(RIVALS)).all()
