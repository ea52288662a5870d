"""``make debezium``: changes of tables in PostgreSQL, read by Debezium's own engine, written by
``upserts`` and the sink into topics, and compared with Debezium's own ExtractNewRecordState.

    python -m tests.changelogs.debezium --changes 300 --seed 1
    python -m tests.changelogs.debezium --changes 12 --record   # tests/changelogs/recorded.jsonl

Beside Java it needs PostgreSQL's programs on PATH. Debezium's jars are fetched from Maven Central.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_sink import register, upserts
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.local_kafka.distribution import Coordinate, cache_lock, fetch
from spark_kafka_sink.local_kafka.java import find_java
from tests.changelogs.postgres import Postgres, postgres
from tests.programs import ROOT
from tests.real_kafka import RealKafka, consume_topic
from tests.waiting import wait_for

VERSION: Final = "3.6.1.Final"
_JARS: Final = tuple(
    Coordinate("io.debezium", name, VERSION)
    for name in ("debezium-embedded", "debezium-connector-postgres")
)
RECORDED: Final = Path(__file__).parent / "recorded.jsonl"


@dataclass(frozen=True, slots=True)
class Table:
    """Its columns in PostgreSQL, the key, the columns in Spark, and whether an event has the whole
    row before the change.
    """

    name: str
    columns: str
    keys: tuple[str, ...]
    spark: str
    is_full: bool

    @property
    def envelope(self) -> str:
        """The schema of its events."""
        row = f"struct<{self.spark}>"
        return f"op string, before {row}, after {row}, source struct<lsn: long>, ts_ms long"


TABLES: Final = {
    table.name: table
    for table in (
        Table(
            "orders",
            "id bigint, name text, amount numeric(12, 2), note text, at timestamptz, open boolean,"
            " PRIMARY KEY (id, name)",
            ("id", "name"),
            "id: long, name: string, amount: string, note: string, at: string, open: boolean",
            is_full=False,
        ),
        Table(
            "items",
            "id integer PRIMARY KEY, tags text[], data jsonb, ratio double precision, day date,"
            " note text",
            ("id",),
            "id: int, tags: array<string>, data: string, ratio: double, day: string, note: string",
            is_full=True,
        ),
    )
}

Record = tuple[bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Event:
    """A record of Debezium's connector, and what ExtractNewRecordState makes of it (None: it drops
    the record).
    """

    table: str
    key: Any
    value: Any
    unwrapped: dict[str, Any] | None


def read_events(path: Path) -> list[Event]:
    return [
        Event(one["topic"].rpartition(".")[2], one["key"], one["value"], one["unwrapped"])
        for one in map(json.loads, path.read_text().splitlines())
    ]


def envelopes(events: Iterable[Event], table: str) -> list[dict[str, Any]]:
    """The envelopes of ``table`` with an offset: without Debezium's tombstones."""
    of_table = (event for event in events if event.table == table and event.value is not None)
    return [event.value | {"offset": number} for number, event in enumerate(of_table)]


def unwrapped(events: Iterable[Event], table: str) -> dict[str, list[Any]]:
    """The values that ExtractNewRecordState gives to each key, in order. A second tombstone after a
    tombstone counts once.
    """
    found: dict[str, list[Any]] = {}
    for event in events:
        if event.table == table and event.unwrapped is not None:
            _add(found, event.unwrapped["key"], event.unwrapped["value"])
    return found


def by_key(records: Iterable[Record]) -> dict[str, list[Any]]:
    """The values of each key in a topic, in order."""
    found: dict[str, list[Any]] = {}
    for key, value in records:
        _add(found, json.loads(key or b""), None if value is None else json.loads(value))
    return found


def _add(found: dict[str, list[Any]], key: Any, value: Any) -> None:
    values = found.setdefault(json.dumps(key, sort_keys=True), [])
    if value is not None or values[-1:] != [None]:
        values.append(value)


def last(of: dict[str, list[Any]]) -> dict[str, Any]:
    """The table: the last value of each key."""
    return {key: values[-1] for key, values in of.items() if values[-1] is not None}


# --- the changes ---------------------------------------------------------------------------------


def transaction(random: Random, keys: int) -> Iterator[str]:
    """Statements that change rows of both tables; some of them change keys, or a key twice."""
    for _ in range(random.randint(1, 4)):
        yield from _of_orders(random, keys) if random.random() < 0.6 else _of_items(random, keys)


def _of_orders(random: Random, keys: int) -> Iterator[str]:
    key, other = random.randrange(keys), random.randrange(keys)
    name = random.choice("ab")
    amount = random.choice(["NULL", f"{random.randrange(10**6) / 100}"])
    note = random.choice(["NULL", "''", "'ä ü'", _large(random)])
    is_open = random.choice(["true", "false", "NULL"])
    row = f"({key}, '{name}', {amount}, {note}, now(), {is_open})"
    replaced = f"ON CONFLICT (id, name) DO UPDATE SET amount = {amount}, note = {note}"
    far = key + 10 * keys
    is_free = f"NOT EXISTS (SELECT FROM orders WHERE id = {far} AND name = '{name}')"
    where = f"WHERE id = {key} AND name = '{name}'"
    yield from random.choice(
        [
            [f"INSERT INTO orders VALUES {row} ON CONFLICT DO NOTHING"],
            [f"INSERT INTO orders VALUES {row} {replaced}"],
            [f"UPDATE orders SET amount = {amount}, open = NOT open {where}"],
            [f"UPDATE orders SET amount = amount + 1 WHERE id BETWEEN {key} AND {key + 3}"],
            [f"DELETE FROM orders {where}"],
            [f"DELETE FROM orders {where}", f"INSERT INTO orders VALUES {row}"],
            # Another key, and a key that another row has had.
            [
                f"DELETE FROM orders WHERE id = {other} AND name = '{name}'",
                f"UPDATE orders SET id = {other} {where}",
            ],
            [f"UPDATE orders SET id = {far} {where} AND {is_free}"],
        ]
    )


def _large(random: Random) -> str:
    """A text that PostgreSQL stores apart; an update that leaves it has no event of it."""
    seed = random.getrandbits(32)
    return f"(SELECT string_agg(md5({seed} || ' ' || i), '') FROM generate_series(1, 66) AS i)"


def _of_items(random: Random, keys: int) -> Iterator[str]:
    key, other = random.randrange(keys), random.randrange(keys)
    tags = random.choice(["NULL", "ARRAY[]::text[]", "ARRAY['x', NULL, 'ü']"])
    data = random.choice(["NULL", f"""'{{"n": {random.randrange(99)}, "s": "q"}}'"""])
    ratio = random.choice(["NULL", "0", "-0.5", "1e300"])
    note = random.choice(["NULL", "'n'", _large(random)])
    row = f"({key}, {tags}, {data}, {ratio}, DATE '2026-01-01' + {key}, {note})"
    yield from random.choice(
        [
            [f"INSERT INTO items VALUES {row} ON CONFLICT (id) DO UPDATE SET ratio = {ratio}"],
            [f"INSERT INTO items VALUES {row} ON CONFLICT DO NOTHING"],
            [f"UPDATE items SET data = {data}, tags = {tags} WHERE id >= {key}"],
            [f"DELETE FROM items WHERE id = {key}"],
            # Two rows change places.
            [
                f"UPDATE items SET id = -1 WHERE id = {key}",
                f"UPDATE items SET id = {key} WHERE id = {other}",
                f"UPDATE items SET id = {other} WHERE id = -1",
            ],
        ]
    )


def _changed(server: Postgres, random: Random, changes: int, keys: int) -> None:
    for _ in range(changes):
        server.run(*transaction(random, keys))


def events_of(folder: Path, changes: int, seed: int, keys: int) -> list[Event]:
    """The events of ``changes`` transactions, half of them before the connector's snapshot."""
    random = Random(seed)
    with cache_lock() as directory:
        jars = fetch(find_java(), directory, f"debezium-{VERSION}", _JARS) / "jars"
    output = folder / "events.jsonl"
    with postgres(folder) as server:
        for table in TABLES.values():
            server.run(
                f"CREATE TABLE {table.name} ({table.columns})",
                f"ALTER TABLE {table.name} ALTER COLUMN note SET STORAGE EXTERNAL",
            )
            if table.is_full:
                server.run(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL")
        server.run("CREATE TABLE ended (id integer PRIMARY KEY)")
        _changed(server, random, changes // 2, keys)
        tables = ",".join(f"public.{name}" for name in (*TABLES, "ended"))
        log, printed = folder / "engine.err", folder / "engine.out"
        source = str(ROOT / "tests" / "java" / "DebeziumEvents.java")
        command = [str(find_java().path), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
        with log.open("w") as err, printed.open("w") as out:
            engine = subprocess.Popen(
                [*command, source, str(server.port), tables, str(output)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        try:
            wait_for(
                lambda: "snapshot" in printed.read_text() or engine.poll() is not None,
                180,
                "Debezium's snapshot",
            )
            _changed(server, random, changes - changes // 2, keys)
            server.run("INSERT INTO ended VALUES (1)")
            code = engine.wait(180)
            assert code == 0, log.read_text()[-4000:]
        finally:
            engine.kill()
            engine.wait(60)
    return read_events(output)


# --- the topics ----------------------------------------------------------------------------------


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .getOrCreate()
    )
    register(spark)
    return spark


def frame_of(spark: SparkSession, rows: Iterable[dict[str, Any]], table: Table) -> DataFrame:
    """Envelopes as the how-to reads them from a topic: JSON, and the offset."""
    texts = [(row["offset"], json.dumps(row)) for row in rows]
    read = spark.createDataFrame(texts, "offset long, text string")
    return read.select("offset", F.from_json("text", table.envelope).alias("e")).select(
        "offset", "e.*"
    )


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Empty: both are the same."""
    wrong = [key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key)]
    shown = [f"{key}: {found.get(key)} and not {wanted.get(key)}"[:600] for key in wrong[:3]]
    return f"{len(wrong)} keys: {'; '.join(shown)}" if wrong else ""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=300, help="transactions")
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="only keep the events for the tests")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kprod-debezium-") as home:
        Path(home).chmod(0o755)
        events = events_of(Path(home), given.changes, given.seed, given.keys)
        if given.record:
            RECORDED.write_text((Path(home) / "events.jsonl").read_text())
            return 0
    with KafkaCluster() as cluster:
        spark = session()
        try:
            wrong = [
                _compared(spark, cluster.bootstrap, events, table) for table in TABLES.values()
            ]
        finally:
            spark.stop()
    return int(any(wrong))


def _compared(spark: SparkSession, brokers: str, events: list[Event], table: Table) -> bool:
    rows, wanted = envelopes(events, table.name), unwrapped(events, table.name)
    ops = sorted({row["op"] for row in rows})
    print(f"{table.name}: {len(rows)} events {ops}, {len(wanted)} keys, {len(last(wanted))} rows")
    shuffled = frame_of(spark, Random(3).sample(rows, len(rows)), table).repartition(3)
    in_order = frame_of(spark, rows, table).coalesce(1)
    keys = list(table.keys)
    ways = {
        "upserts by the position": (upserts(shuffled, keys, "debezium"), last, {}),
        "upserts by the offset": (upserts(shuffled, keys, "debezium", ["offset"]), last, {}),
        "options alone": (in_order, dict, {}),
    }
    is_wrong = False
    for name, (frame, of, options) in ways.items():
        topic = RealKafka(brokers).unique_topic("debezium", 3, {"cleanup.policy": "compact"})
        _write(frame, brokers, topic, table, options)
        read = consume_topic(brokers, topic, isolation="read_committed")
        found = by_key(zip(read.keys, read.values, strict=True))
        said = difference(of(found), of(wanted))
        is_wrong |= bool(said)
        print(f"{table.name}, {name}: {said or 'equal to ExtractNewRecordState'}", flush=True)
    return is_wrong


def _write(
    frame: DataFrame, brokers: str, topic: str, table: Table, options: dict[str, str]
) -> None:
    given = {
        "kafka.bootstrap.servers": brokers,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "changelog": "debezium",
        "keyColumns": ", ".join(table.keys),
        "valueColumns": "*",
        "jsonIgnoreNullFields": "false",
    }
    frame.write.format("kprod").options(**given | options).mode("append").save()


if __name__ == "__main__":
    sys.exit(main())
