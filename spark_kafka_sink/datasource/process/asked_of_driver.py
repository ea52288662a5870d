"""Sends requests from the user's process to the driver, and the answers back.

The user's process may be a Connect client on a machine that can't reach the brokers. The driver can
reach the brokers. A request takes this way:

1. The user's process reads the schema of the data source ``kprod``. The request is an option of
   this read.
2. Spark calls the data source on the driver. The data source executes the request, and returns a
   schema with one column. The metadata of the column contain the answer.

Spark starts no task for a schema, so a request is answered even while all slots of the executors
are busy.

- For an answer that is never an error, the driver calls :func:`schema_with_answer`, and the user's
  process calls :func:`answer_of_driver`.
- For an answer that may be an error, the driver calls :func:`schema_with_text`, and the user's
  process calls :func:`text_or_error`.

``last_report``, ``backfill`` and ``by_leader`` send such requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base import errors
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, ErrorCode, KafkaError
from spark_kafka_sink.base.format_name import FORMAT
from spark_kafka_sink.datasource.process.active_session import active_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COLUMN: Final = "report"
_ANSWER, _TYPE, _MESSAGE, _HINT, _KIND = "answer", "type", "message", "hint", "kind"


def answer_of_driver(
    spark: SparkSession, options: Mapping[str, str | float | bool]
) -> Mapping[str, str] | None:
    """Sends a request to the driver. Returns the fields of the answer, or None if the driver's
    package is too old for this request. ``options`` contain the request. They are passed as the
    options of a read with the format ``kprod``.
    """
    with active_session(spark):
        schema = spark.read.format(FORMAT).options(**options).load().schema
    return schema[_COLUMN].metadata if _COLUMN in schema.names else None


def schema_with_answer(answer: Mapping[str, str]) -> StructType:
    """Makes a schema with one column. The metadata of the column contain the driver's answer."""
    return StructType([StructField(_COLUMN, StringType(), metadata=dict(answer))])


def text_or_error(
    spark: SparkSession, options: Mapping[str, str | float | bool], function: str
) -> str:
    """Sends a request to the driver, and returns the text of the answer. If the answer is an error,
    raises this error. The driver must create the answer by :func:`schema_with_text`.

    Raises ConfigError if the driver's package is too old for the request. The message of the
    ConfigError contains ``function``: the name of the public function that needs the answer, such
    as ``backfill``.
    """
    found = answer_of_driver(spark, options)
    if found is None:
        raise ConfigError(
            f"the driver's spark-kafka-sink is older, and has no {function}",
            hint="install the same version here and on the driver",
        )
    if _ANSWER in found:
        return found[_ANSWER]
    code = found[_KIND]
    kinds: list[Kind | ErrorCode] = [*Kind, *ErrorCode]
    kind = next((one for one in kinds if one.kp_code == code), Kind.UNSPECIFIED)
    cls: type[KafkaError] = getattr(errors, found[_TYPE], KafkaError)
    raise cls(found[_MESSAGE], hint=found[_HINT] or None, kind=kind)


def schema_with_text(answer: Callable[[], str]) -> StructType:
    """Calls ``answer`` on the driver, and makes a schema whose metadata contain the text that
    ``answer`` returns. If ``answer`` raises a KafkaError, the metadata contain the type, message,
    hint and kind of the error. :func:`text_or_error` raises this error again in the user's process.
    """
    try:
        found = {_ANSWER: answer()}
    except KafkaError as error:
        found = {
            _TYPE: type(error).__name__,
            _MESSAGE: error.message,
            _HINT: error.hint or "",
            _KIND: error.kind.kp_code,
        }
    return schema_with_answer(found)
