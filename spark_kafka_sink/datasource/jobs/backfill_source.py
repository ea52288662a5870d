"""The source of a backfill: a table that is given by name, or a DataFrame. ``backfill_rows.py``
selects the rows of a step from the source.

All calls of ``backfill`` with one name should read the same rows:

- A Delta or Iceberg table that is given by name is pinned: every call reads the snapshot that the
  table had at the first call.
- For another table, and for a DataFrame that reads files, the first call records the list of files.
  If the list differs later, the call fails.
- A DataFrame without files (JDBC, ``range``) can't be checked. The user must keep its rows the
  same.

A DataFrame is never pinned, because it can't be moved to an earlier version of its table. For
example, a DataFrame of ``spark.table`` reads the newest version of a Delta table in each action.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, safe_text, warn_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

#: Format and version of a pin, as in ``delta 12``.
_DELTA, _ICEBERG, _NONE = "delta", "iceberg", ""
#: Characters of a digest of files.
_DIGEST: Final = 12
#: Names of facts.
_COLUMNS, _ZONE, _TABLE, FILES = "columns", "session's time zone", "table", "source's files"
_TABLE_ID: Final = "table's id"
OF_SOURCE: Final = (_COLUMNS, _ZONE, _TABLE, _TABLE_ID, FILES)


@dataclass(slots=True)
class BackfillSource:
    """The source of a backfill. ``given`` is a DataFrame, or the SQL name of a table. ``transform``
    is a function that gets the table as a DataFrame, and returns a DataFrame with the columns to
    write.
    """

    spark: SparkSession
    given: DataFrame | str
    transform: Callable[[DataFrame], DataFrame] | None = None
    _pinned: DataFrame | None = field(default=None, repr=False)

    def pin(self) -> str:
        """The newest snapshot of a Delta or Iceberg table that is given by name, such as ``delta
        7``. Empty for any other source.

        If no snapshot is found, and a query failed with another error than Spark's errors for other
        formats, logs a warning: then only the table's list of files is compared.
        """
        if not isinstance(self.given, str):
            return _NONE
        from pyspark.errors import AnalysisException, UnsupportedOperationException

        failures: list[str] = []
        for of_format, query, column in (
            (_DELTA, f"DESCRIBE HISTORY {self.given} LIMIT 1", "version"),
            (_ICEBERG, f"SELECT * FROM {self.given}.refs WHERE name = 'main'", "snapshot_id"),  # noqa: S608 - as below
        ):
            try:
                found = self.spark.sql(query).collect()
            except (AnalysisException, UnsupportedOperationException):
                continue  # the table has another format, or none
            except Exception as error:  # noqa: BLE001 - the driver's exceptions have no base class
                failures.append(
                    f"backfill can't read the {of_format} snapshot of {self.given}: each step reads"
                    f" the newest rows, if the table has this format ({safe_text(str(error), 200)})"
                )
                continue
            if found:
                return f"{of_format} {found[0][column]}"
        warn_once(_log, (coded(Kind.BACKFILL_PLAN.kp_code, text) for text in failures))
        return _NONE

    def rows(self, pin: str) -> DataFrame:
        """All rows of the source at the snapshot ``pin``, after ``transform``."""
        if not isinstance(self.given, str):
            return self.given
        if self._pinned is None:
            version = pin.partition(" ")[2]
            table = (
                self.spark.sql(f"SELECT * FROM {self.given} VERSION AS OF {int(version)}")  # noqa: S608 - the user's own
                if version
                else self.spark.table(self.given)
            )
            self._pinned = table if self.transform is None else self.transform(table)
        return self._pinned

    def facts(self, pin: str) -> dict[str, str]:
        """The names and values of the source's properties that must be the same in each call."""
        rows = self.rows(pin)
        found = {
            _COLUMNS: rows.schema.simpleString(),
            _ZONE: str(self.spark.conf.get("spark.sql.session.timeZone")),
        }
        if isinstance(self.given, str):
            found[_TABLE] = self.given
        if pin.startswith(_DELTA):
            # A table that was dropped and made again has versions from 0 again, with other rows.
            (detail,) = self.spark.sql(f"DESCRIBE DETAIL {self.given}").select("id").collect()
            found[_TABLE_ID] = str(detail["id"])
        if not pin:
            found[FILES] = files_of(rows)
        return found

    def check(self, pin: str, recorded: str | None) -> None:
        """Raises ConfigError if the source's files have changed since the first call of
        ``backfill``. ``recorded`` is the text of :func:`files_of` from the first call. A table that
        is pinned to a snapshot (``pin``) is not checked.
        """
        if pin:
            return
        # A new plan: that of a DataFrame keeps its list of files.
        now = files_of(self.rows(pin).select("*"))
        if recorded is not None and now != recorded:
            raise ConfigError(
                f"the source of the backfill has changed: {recorded} when it was planned, and "
                f"{now} now",
                hint="give a source of the files that were planned, or choose a new name: then all "
                "rows are written once more; a Delta or Iceberg table that is given by its name is "
                "read at one version, whatever is added to it",
                kind=Kind.BACKFILL_PLAN,
            )


def files_of(df: DataFrame) -> str:
    """The number of the source's files, and a digest of their names, as text."""
    names = sorted(df.inputFiles())
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:_DIGEST]
    return f"{len(names)} files ({digest})"
