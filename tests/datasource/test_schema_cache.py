"""What a registry answered outlives the process that asked, for times without the registry."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import threading
import time

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark_kafka_sink.base.errors import NoRegistryAnswerError, SchemaRegistryError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.schemas import payload_schemas, schema_cache
from spark_kafka_sink.datasource.schemas.payload_schemas import with_encoders
from spark_kafka_sink.datasource.schemas.schema_cache import SchemaCache
from spark_kafka_sink.datasource.write.schema import plan_columns
from spark_kafka_sink.network.schema_registry import RegisteredSchema
from tests.network.fake_registry import FakeRegistry, same

TEXT = json.dumps({
    "type": "record", "name": "t", "fields": [
        {"name": "id", "type": ["null", "long"], "default": None},
        {"name": "name", "type": ["null", "string"], "default": None},
    ],
})  # fmt: skip
SCHEMA = StructType([StructField("id", LongType()), StructField("name", StringType())])
ANSWER = {"id": 7, "version": 3, "schema": TEXT}
#: Each way to a schema, and what of it makes it another question.
WAYS = [
    ({"use.schema.id": 7}, {"use.schema.id": 8}),
    ({"use.latest.version": True}, {"use.latest.version": True, "topic": "other"}),
    ({}, {"valueColumns": "id"}),
    ({"valueSchema": TEXT}, {"valueSchema": TEXT.replace('"t"', '"u"')}),
]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The directory of the files, which the cache makes."""
    monkeypatch.setenv(schema_cache.ENVIRONMENT, str(tmp_path / "schemas"))
    payload_schemas._kept.clear()
    return tmp_path / "schemas"


def planned(url, **options):
    """As in a process that has planned nothing yet."""
    payload_schemas._kept.clear()
    given = {
        "kafka.bootstrap.servers": "h:9", "topic": "t", "valueColumns": "*", "valueFormat": "avro",
        "schema.registry.url": url, "kafka.max.block.ms": 1000,
    } | options  # fmt: skip
    config = parse_sink_config(given)
    return with_encoders(plan_columns(SCHEMA, config.topic, config.named_columns), SCHEMA, config)


@pytest.mark.parametrize(("way", "another"), WAYS, ids=["id", "latest", "derived", "given"])
def test_a_new_process_goes_on_without_the_registry(place, caplog, way, another):
    with FakeRegistry(same(200, ANSWER)) as keeper:
        first = planned(keeper.url, **way)
    for _ in range(3):
        assert planned(keeper.url, **way) == first
    warnings = [one for one in caplog.messages if "continuing with schema id 7" in one]
    assert len(warnings) == 1
    with pytest.raises(NoRegistryAnswerError):
        planned(keeper.url, **way | another)


def test_another_registry_is_asked_for_itself(place):
    with FakeRegistry(same(200, ANSWER)) as keeper:
        planned(keeper.url, **WAYS[0][0])
    with pytest.raises(NoRegistryAnswerError):
        planned("http://127.0.0.1:1/api", **WAYS[0][0])


def test_a_refusal_is_no_absence(place):
    with FakeRegistry(same(200, ANSWER)) as keeper:
        planned(keeper.url, **WAYS[0][0])
        keeper.answer = same(401, {"message": "no"})
        with pytest.raises(SchemaRegistryError, match="answered 401"):
            planned(keeper.url, **WAYS[0][0])


def test_a_registry_that_answers_again_counts_and_is_warned_of_again(place, caplog):
    with FakeRegistry(same(200, ANSWER)) as keeper:
        url = keeper.url
        planned(url, **WAYS[1][0])
        keeper.answer = same(503, {})
        planned(url, **WAYS[1][0])
        keeper.answer = same(200, ANSWER | {"id": 9})
        assert planned(url, **WAYS[1][0]).value.encoding.branch[4] == 9
        keeper.answer = same(503, {})
        assert planned(url, **WAYS[1][0]).value.encoding.branch[4] == 9
    assert "schema id 7" in caplog.text
    assert "schema id 9" in caplog.text


def test_a_process_of_its_own_reads_what_another_wrote(place):
    SchemaCache(("q",)).write(ONE)
    code = (
        "from spark_kafka_sink.datasource.schemas.schema_cache import SchemaCache\n"
        "print(SchemaCache(('q',)).read().text)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ONE.text


# -- the files

ONE = RegisteredSchema(7, "AVRO", TEXT, None, None, (("a.B", '"string"'),))
CACHE = SchemaCache(("q",))


def file_of(place):
    (found,) = place.glob("*.json")
    return found


def test_directory_and_file_are_of_this_user_alone(place):
    CACHE.write(ONE)
    assert CACHE.read() == ONE
    assert [stat.S_IMODE(one.stat().st_mode) for one in (place, file_of(place))] == [0o700, 0o600]


def test_an_address_with_a_secret_is_in_no_file(place):
    with FakeRegistry(same(200, ANSWER)) as keeper:
        planned(f"{keeper.url}/token-4711", **WAYS[0][0])
    assert all("token-4711" not in one.read_text() for one in place.iterdir())
    assert json.loads(file_of(place).read_text().partition("\n")[2])["answer"][0] == 7


def of_all(path):
    path.chmod(0o666)


def of_a_group(path):
    path.parent.chmod(0o770)


def half(path):
    path.write_bytes(path.read_bytes()[:-9])


def changed(path):
    path.write_text(path.read_text().replace("string", "double"))


def of_another_question(path):
    SchemaCache(("other",)).write(ONE)
    (other,) = set(path.parent.glob("*.json")) - {path}
    other.replace(path)


def a_link(path):
    aside = path.with_suffix(".aside")
    path.rename(aside)
    path.symlink_to(aside)


def a_fifo(path):
    path.unlink()
    os.mkfifo(path)


def too_old(path):
    long_ago = time.time() - schema_cache.LONGEST_S - 60
    os.utime(path, (long_ago, long_ago))


def of_a_later_version(path):
    body = path.read_text().partition("\n")[2].replace('"version": 1', '"version": 2')
    path.write_text(f"{schema_cache._digest(body)}\n{body}")


def without_bytes(path):
    path.write_bytes(b"")


SPOILT = [of_all, of_a_group, half, changed, of_another_question, a_link, a_fifo, too_old,
          of_a_later_version, without_bytes]  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda one: one.__name__)
def test_a_file_that_may_be_wrong_is_not_believed(place, spoil):
    CACHE.write(ONE)
    assert CACHE.read() == ONE
    spoil(file_of(place))
    assert CACHE.read() is None


def test_a_directory_that_is_a_link_is_not_used(place, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "elsewhere")
    CACHE.write(ONE)
    assert CACHE.read() is None
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("given", ["off", "/dev/null/x", "/proc/x"])
def test_without_a_place_a_write_works_as_long_as_the_registry(monkeypatch, given):
    monkeypatch.setenv(schema_cache.ENVIRONMENT, given)
    with FakeRegistry(same(200, ANSWER)) as keeper:
        planned(keeper.url, **WAYS[0][0])
    with pytest.raises(NoRegistryAnswerError):
        planned(keeper.url, **WAYS[0][0])


def test_without_a_home_files_are_temporary(tmp_path, monkeypatch):
    monkeypatch.delenv(schema_cache.ENVIRONMENT)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    monkeypatch.setattr(schema_cache.tempfile, "tempdir", str(tmp_path))
    CACHE.write(ONE)
    assert CACHE.read() == ONE
    assert [one.name for one in tmp_path.iterdir()] == [f"spark_kafka_sink-schemas-{os.geteuid()}"]


def test_an_answer_that_can_not_be_stored_leaves_no_draft(place, caplog):
    """Its name is taken by a directory, so the file system refuses the last step."""
    CACHE.write(ONE)
    path = file_of(place)
    path.unlink()
    path.mkdir()
    with caplog.at_level(logging.INFO):
        CACHE.write(ONE)
    assert [one.name for one in place.iterdir()] == [path.name]
    assert "can't be cached for an outage of the registry: Is a directory" in caplog.text
    assert CACHE.read() is None


def test_an_answer_that_is_too_large_is_not_stored(place, monkeypatch):
    monkeypatch.setattr(schema_cache, "_MOST_BYTES", 40)
    CACHE.write(ONE)
    assert not place.exists()


def test_a_user_is_warned_at_each_use_if_no_use_can_be_noted(monkeypatch):
    monkeypatch.setenv(schema_cache.ENVIRONMENT, "off")
    assert [CACHE.is_first_use() for _ in range(2)] == [True, True]


def test_the_files_are_bounded_and_the_oldest_go(place, monkeypatch):
    monkeypatch.setattr(schema_cache, "MOST_FILES", 3)
    for number in range(6):
        SchemaCache((number,)).write(ONE)
        for path in place.iterdir():
            os.utime(path, (path.stat().st_mtime - 10,) * 2)
    there = [number for number in range(6) if SchemaCache((number,)).read() is not None]
    assert there == [3, 4, 5]
    assert len(list(place.iterdir())) == 3


@pytest.mark.parametrize("limit", ["MOST_FILES", "_MOST_BYTES_OF_ALL"])
def test_other_files_in_a_directory_that_a_user_names_stay(place, monkeypatch, limit):
    monkeypatch.setattr(schema_cache, limit, 0)
    place.mkdir(mode=0o700)
    names = {"orders.json", "notes.warned", "a" * 40}
    for name in names:
        (place / name).write_text("the user's")
    CACHE.write(ONE)
    assert {one.name for one in place.iterdir()} == names
    assert CACHE.read() is None, "the answer itself went, so the limit was at work"


def test_writers_and_readers_at_once_see_whole_files(place):
    answers = [RegisteredSchema(n, "AVRO", TEXT * 200, None) for n in range(4)]
    CACHE.write(answers[0])
    seen = []

    def work(answer):
        for _ in range(50):
            CACHE.write(answer)
            seen.append(CACHE.read())

    threads = [threading.Thread(target=work, args=(one,)) for one in answers]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(seen) == 200
    assert all(one in answers for one in seen)
    assert len(list(place.iterdir())) == 1, "no draft is left"
