"""The driver's side of a request, in the process of the test."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from spark_kafka_sink.base.format_name import FORMAT
from spark_kafka_sink.datasource.source import KprodDataSource


class SessionInProcess:
    """A stand-in for a SparkSession, which plans reads with ``KprodDataSource`` itself. Spark does
    this in a Python process of the driver.
    """

    def __init__(self) -> None:
        self._options: Mapping[str, object] = {}

    @property
    def read(self) -> SessionInProcess:
        return self

    def format(self, name: str) -> SessionInProcess:
        assert name == FORMAT
        return self

    def options(self, **options: object) -> SessionInProcess:
        self._options = options
        return self

    def load(self) -> SessionInProcess:
        return self

    @property
    def schema(self) -> StructType:
        texts = {name: str(value) for name, value in self._options.items()}
        found = KprodDataSource(CaseInsensitiveDict(texts)).schema()
        assert isinstance(found, StructType)
        return found
