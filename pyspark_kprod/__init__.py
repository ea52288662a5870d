"""The entry point by which Spark finds the format ``kprod`` without registration.

Spark imports every installed module called ``pyspark_*`` once per driver and registers its
``DefaultSource``. If one of these modules raises on import, Spark drops all of them with one
warning. So this module imports nothing that could raise: the sink is loaded when the data source is
used, and an error of the installation (such as a broken pyarrow) is raised there, where the user
sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

try:
    from pyspark.sql.datasource import DataSource
except Exception:  # noqa: BLE001 - without pyspark nobody looks for a DefaultSource
    DataSource = None  # type: ignore[assignment,misc]

if DataSource is not None:

    class DefaultSource(DataSource):
        """The data source ``kprod``; passes all calls to
        ``spark_kafka_sink.datasource.source.KprodDataSource``.
        """

        def __init__(self, options: MutableMapping[str, str]) -> None:
            from spark_kafka_sink.datasource.source import KprodDataSource

            super().__init__(options)
            self._source = KprodDataSource(options)

        @classmethod
        def name(cls) -> str:
            return "kprod"

        def schema(self) -> StructType | str:
            return self._source.schema()

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return self._source.writer(schema, overwrite)

        def streamWriter(  # noqa: N802 - Spark's name
            self,
            schema: StructType,
            overwrite: bool,
        ) -> DataSourceStreamWriter:
            return self._source.streamWriter(schema, overwrite)

        def reader(self, schema: StructType) -> DataSourceReader:
            return self._source.reader(schema)

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
            return self._source.streamReader(schema)
