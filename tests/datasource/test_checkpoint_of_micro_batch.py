"""What foreach_batch and transaction say of a micro-batch by the query's checkpoint. No Spark."""

from __future__ import annotations

import json
import logging
import uuid
from pathlib import Path

import pytest

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint, digest_of
from spark_kafka_sink.datasource.foreach_batch import transaction
from tests.datasource.saved_frames import OPTIONS, Frame, Session, written


@pytest.fixture
def checkpoint(tmp_path):
    """Of a query whose batch 3 ends at offset 7 of a partition."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"source":{"0":7}}')
    return str(tmp_path)


@pytest.fixture
def name():
    """One of its own: this process keeps the plan of the last write of each name."""
    return f"offsets-{uuid.uuid4().hex}"


@pytest.fixture(params=["option", "file"])
def with_group(request, tmp_path):
    """``offsetsGroup``, given as an option or as a line of a configFile."""
    if request.param == "option":
        return {"offsetsgroup": "mine"}
    (tmp_path / "kafka.properties").write_text("offsetsGroup=mine\n")
    return {"configFile": str(tmp_path / "kafka.properties")}


def test_foreach_batch_passes_the_offsets_of_its_batch(checkpoint, with_group, name):
    write = foreach_batch(name, **OPTIONS, **with_group, checkpointLocation=checkpoint)
    assert written(write, 3).context.offsets == {"source": {"0": 7}}


def test_a_transaction_passes_offsets_to_its_deciding_write(checkpoint, with_group, name):
    session = Session()
    given = OPTIONS | with_group
    with transaction(name, 3, **given, checkpointLocation=checkpoint) as t:
        t.write(Frame(session), **with_group)
    assert [f.context.offsets for f in session.saved] == [None, {"source": {"0": 7}}]


def test_a_group_without_the_checkpoint_is_an_error(with_group, name):
    with pytest.raises(ConfigError, match="offsetsGroup needs the option checkpointLocation"):
        foreach_batch(name, **OPTIONS, **with_group)(Frame(), 3)


@pytest.mark.parametrize(("write", "version"), [("function", 16), ("block", 17)])
def test_a_version_that_two_micro_batches_have_is_a_warning(whole, write, version, name, caplog):
    """Once for each version in a process."""
    offset = {"reservoirId": "a", "reservoirVersion": version, "index": 1}
    offset["isStartingVersion"] = False
    (Path(whole) / "offsets" / "3").write_text(f"v1\n{{}}\n{json.dumps(offset)}")
    of = {"function": in_function, "block": in_block}[write]
    given = OPTIONS | {"checkpointLocation": whole}
    of(Frame(Session({}, ("query-1", "run-1"))), 3, name=name, **given)
    assert "KP0237" not in caplog.text, "the rows are no changes"
    for _ in range(2):
        changes = given | {"changelog": "delta-cdf"}
        of(Frame(Session({}, ("query-1", "run-1"))), 3, name=f"{name}-2", **changes)
    (line,) = (one for one in caplog.messages if "KP0237" in one)
    assert f"ends within version {version} of the Delta table" in line


DIGEST = digest_of("query-1", 3, 'v1\n{"batchWatermarkMs":0}\n{"source":{"0":7}}')


@pytest.fixture
def whole(checkpoint):
    """The same, with the id of its query, ``query-1``."""
    (Path(checkpoint) / "metadata").write_text('{"id":"query-1"}')
    return checkpoint


def in_block(frame, number, name="identified", **options):
    with transaction(name, number, **options) as t:
        t.write(frame)


def in_function(frame, number, name="identified", **options):
    foreach_batch(name, **options)(frame, number)


BOTH = pytest.mark.parametrize("write", [in_block, in_function])


@BOTH
@pytest.mark.parametrize(
    ("properties", "query", "digest"),
    [
        ({}, ("query-1", "run-1"), DIGEST),
        ({"sql.streaming.queryId": "query-1"}, None, DIGEST),
        (None, None, DIGEST),
        ({}, (), ""),
    ],
    ids=["session", "thread", "connect", "unknown"],
)
def test_every_write_has_the_digest_of_its_batch(whole, write, properties, query, digest):
    """A thread of a classic session that names no query may write any DataFrame, whose rows are
    compared.
    """
    session = Session(properties, query)
    write(Frame(session), 3, **OPTIONS, checkpointLocation=whole)
    assert {frame.context.digest for frame in session.saved} == {digest}


def test_the_digest_is_of_query_number_and_offsets():
    """Not of the metadata, in which Spark writes the time."""
    same = 'v1\n{"batchTimestampMs":5}\n{"source":{"0":7}}'
    assert digest_of("query-1", 3, same) == DIGEST
    others = [
        digest_of("query-2", 3, same),
        digest_of("query-1", 4, same),
        digest_of("query-1", 3, same.replace("7", "8")),
        digest_of("query-1", 3, same + "\n-"),
        digest_of("query-1", 3, same, ["files"]),
    ]
    assert len({DIGEST, *others}) == 6


@BOTH
@pytest.mark.parametrize("damage", ["no metadata", "no offsets", "no id", "other id", "ahead"])
def test_without_a_group_no_checkpoint_fails_a_write(whole, write, damage, caplog):
    """Rows and bytes decide then, as without the option."""
    files = {
        "no metadata": (Path(whole) / "metadata").unlink,
        "no offsets": (Path(whole) / "offsets" / "3").unlink,
        "no id": lambda: (Path(whole) / "metadata").write_text("{}"),
        "other id": lambda: (Path(whole) / "metadata").write_text('{"id":"query-0"}'),
        "ahead": lambda: (Path(whole) / "offsets" / "4").write_text("v1\n{}\n-"),
    }
    files[damage]()
    session = Session({}, ("query-1", "run-1"))
    with caplog.at_level("INFO"):
        for _ in range(2):
            write(Frame(session), 3, **OPTIONS, checkpointLocation=whole)
    assert {frame.context.digest for frame in session.saved} == {""}
    assert sum("by its rows and bytes" in line for line in caplog.messages) == 1


@BOTH
@pytest.mark.parametrize(
    ("query", "why"),
    [
        (("query-2", "run-1"), "is of query query-1, and query query-2 is writing"),
        # Where no query is known (Spark Connect), its later batches show that it is an old one.
        (None, "is ahead: batch 3 is to be written, and 4 has begun"),
    ],
    ids=["another query's", "ahead"],
)
def test_with_a_group_a_checkpoint_that_does_not_fit_is_refused(whole, write, query, why):
    """The group would get the offsets of that query's batch 3: ahead of the data."""
    (Path(whole) / "offsets" / "4").write_text("v1\n{}\n-")
    session = Session({}, query)
    with pytest.raises(ConfigError, match=why):
        write(Frame(session), 3, **OPTIONS, offsetsGroup="g", checkpointLocation=whole)
    assert session.saved == []


def test_a_file_sources_digest_has_its_files(whole):
    """Its offset only counts the source's batches."""
    log = 'v1\n{}\n{"source":{"0":7}}\n{"logOffset":9}'
    (Path(whole) / "offsets" / "3").write_text(log)
    folder = Path(whole) / "sources" / "1"
    folder.mkdir(parents=True)
    digests = []
    for files in ("v1\na", "v1\nb"):
        (folder / "9.compact").write_text(files)
        digests.append(Checkpoint(whole).digest(3))
        assert digests[-1] == digest_of("query-1", 3, log, [files])
    assert digests[0] != digests[1]
    (folder / "9").write_text("v1\nc")
    assert Checkpoint(whole).digest(3) == digest_of("query-1", 3, log, ["v1\nc"])


def test_a_file_source_without_its_list_has_no_digest(whole):
    (Path(whole) / "offsets" / "3").write_text('v1\n{}\n{"logOffset":9}')
    assert Checkpoint(whole).known_digest(3) == ""


def test_a_checkpoint_that_can_not_be_read_is_tried_once(tmp_path, caplog):
    """A commit without a session would wait for its store at each micro-batch."""
    missing = Checkpoint(f"{tmp_path}/nowhere")
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        assert [missing.known_digest(number) for number in (3, 4)] == ["", ""]
    assert caplog.text.count("a repeated micro-batch is recognised by its rows") == 1
    folder = tmp_path / "nowhere" / "offsets"
    folder.mkdir(parents=True)
    (tmp_path / "nowhere" / "metadata").write_text('{"id":"query-1"}')
    (folder / "5").write_text('v1\n{}\n{"source":{"0":7}}')
    assert missing.digest(5), "it can be read by now"
    assert Checkpoint(f"{tmp_path}/nowhere").known_digest(5) == ""
