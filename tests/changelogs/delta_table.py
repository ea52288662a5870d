"""A Delta table with a change feed, and random statements that change it.

A key is (id, name); a name may be null. Some statements change keys, some replace or delete whole
files, so that the commit has no files of changes, and Delta derives the changes from the files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pytest
from pyspark.sql import SparkSession

from bench.peers import delta_jars
from spark_kafka_sink.local_kafka import LocalKafkaError
from spark_kafka_sink.local_kafka.installation import QUICK_JVM

KEYS: Final = ["id", "name"]
#: The table's partitions, each a range of ids: most statements change files of one or two.
_PARTS: Final = 16
#: Statements by weight.
_KINDS: Final = ("merge",) * 9 + ("update",) * 4 + ("rename",) * 2 + ("delete",) * 3 + (
    "replace", "empty",
)  # fmt: skip


def jars_or_skip() -> str:
    """Delta Lake's jars. A machine that can't fetch them skips the test, but CI does not."""
    try:
        return delta_jars()
    except LocalKafkaError:
        if os.environ.get("CI"):
            raise
        pytest.skip("Delta's jars can't be fetched")


def session(
    folder: Path, jars: str, *, cores: int = 2, jvm: Sequence[str] = QUICK_JVM
) -> SparkSession:
    """A Spark with Delta Lake, as small as it can be. Each shuffle has as many tasks as ``cores``.
    ``jvm``: options of Java.
    """
    delta = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.extraJavaOptions", " ".join(jvm))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", delta)
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", cores)
        # A task reads many small files.
        .config("spark.sql.files.openCostInBytes", 1)
        .config("spark.databricks.delta.snapshotPartitions", 1)
        # The sources of the statements are no tables, and their rows are the same each time.
        .config("spark.databricks.delta.merge.materializeSource", "none")
        # Compiling costs more than it saves for some thousand rows.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .getOrCreate()
    )


def last_version(table: Path) -> int:
    """The number of the last commit of the table in this folder; -1: there is none."""
    return max((int(file.stem) for file in (table / "_delta_log").glob("*[0-9].json")), default=-1)


def by_key(rows: list[list[str]]) -> dict[bytes, bytes]:
    """The ``rows`` of a table by key. AssertionError if a key is there twice."""
    found = {key.encode(): row.encode() for key, row in rows}
    assert len(found) == len(rows), "a key is in the table twice"
    return found


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """The table at ``path``, with ids below ``keys``."""

    spark: SparkSession
    path: Path
    keys: int

    @property
    def name(self) -> str:
        return f"delta.`{self.path}`"

    def create(self, random: Random) -> None:
        """With a row for each id, unless it is there."""
        if (self.path / "_delta_log").exists():
            return
        vectors = str(random.random() < 0.5).lower()
        self.spark.sql(
            f"CREATE TABLE {self.name} (id BIGINT, name STRING, number DOUBLE, tags ARRAY<STRING>,"
            " part INT) USING delta PARTITIONED BY (part) TBLPROPERTIES"
            " (delta.enableChangeDataFeed = true, delta.checkpointInterval = 50,"
            f" delta.enableDeletionVectors = {vectors})"
        )
        self.spark.sql(f"INSERT INTO {self.name} {self._rows(0, self.keys, 1, random)}")

    def tidy(self) -> None:
        """Joins small files. A commit without changes."""
        self.spark.sql(f"OPTIMIZE {self.name}")

    def version(self) -> int:
        """The number of the table's last commit."""
        return last_version(self.path)

    def change(self, random: Random) -> str:
        """One random statement; the kind of it."""
        kind = random.choice(_KINDS)
        self.spark.sql(getattr(self, f"_{kind}")(random))
        return kind

    def rows(self) -> list[list[str]]:
        """The key and the row of each row, as Spark's own to_json has them."""
        key, row = (f"to_json(struct({names}))" for names in (", ".join(KEYS), "*"))
        return [
            list(one) for one in self.spark.sql(f"SELECT {key}, {row} FROM {self.name}").collect()
        ]

    def _rows(self, low: int, high: int, step: int, random: Random) -> str:
        """A row for every ``step``-th id from ``low`` to before ``high``."""
        salt = random.randrange(10**6)
        return (
            "SELECT id, element_at(array('n', 'm', NULL), CAST(id % 3 + 1 AS INT)) AS name,"
            f" CASE WHEN id % 11 = 0 THEN double('NaN') WHEN id % 13 = 0 THEN -0.0D"
            f" WHEN id % 17 = 0 THEN NULL ELSE id * {salt} / 7 END AS number,"
            f" IF(id % 5 = 0, NULL, array(CAST({salt} AS STRING), NULL)) AS tags,"
            f" CAST(id * {_PARTS} DIV {self.keys} AS INT) AS part FROM range({low}, {high}, {step})"
        )

    def _some(self, random: Random) -> tuple[int, int]:
        """Bounds of ids, for one in forty of them."""
        low = random.randrange(self.keys)
        return low, low + max(3, self.keys // 40)

    def _merge(self, random: Random) -> str:
        low, high = self._some(random)
        # Some of the source's ids are new, most are not.
        last = high + 9 * (high - low) * (random.random() < 0.2)
        rows = self._rows(low, last, 2, random)
        by_source = (
            f" WHEN NOT MATCHED BY SOURCE AND t.id % {self.keys // 7} = {low % 5} THEN DELETE"
            if random.random() < 0.2
            else ""
        )
        return (
            f"MERGE INTO {self.name} t USING ({rows}) s ON t.id BETWEEN {low} AND {last}"
            " AND t.id = s.id AND t.name <=> s.name"
            f" WHEN MATCHED AND s.id % 4 = {random.randrange(4)} THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND"
            f" s.id < {self.keys} THEN INSERT *{by_source}"
        )

    def _update(self, random: Random) -> str:
        low, high = self._some(random)
        tags = f"array(CAST(number AS STRING), '{random.randrange(10**6)}')"
        return f"UPDATE {self.name} SET tags = {tags} WHERE id BETWEEN {low} AND {high}"

    def _rename(self, random: Random) -> str:
        """Changes keys. No other row has the new name."""
        low, high = self._some(random)
        name = random.choice(["NULL", "'n'", "'m'"])
        return (
            f"UPDATE {self.name} SET name = 'v{random.getrandbits(40)}'"
            f" WHERE id BETWEEN {low} AND {high} AND name <=> {name}"
        )

    def _delete(self, random: Random) -> str:
        low, high = self._some(random)
        return f"DELETE FROM {self.name} WHERE id BETWEEN {low} AND {high}"

    def _replace(self, random: Random) -> str:
        """Whole files: each key of the part is deleted, most are inserted again."""
        part = random.randrange(_PARTS)
        rows = self._rows(0, self.keys, random.choice([1, 1, 3]), random)
        return (
            f"INSERT INTO {self.name} REPLACE WHERE part = {part}"
            f" SELECT * FROM ({rows}) WHERE part = {part}"
        )

    def _empty(self, random: Random) -> str:
        """Whole files, without a look into them."""
        return f"DELETE FROM {self.name} WHERE part = {random.randrange(_PARTS)}"
