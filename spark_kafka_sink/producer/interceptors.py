"""Runs the user's interceptors before and after the sending of a record (Java's
``ProducerInterceptors``).

* ``on_send`` runs before the wait for metadata, the serializers and the partitioner.
* ``on_acknowledgement`` runs after the record was acknowledged or has failed.
* If one of these methods raises an exception, a warning is logged, without the content of the
  record. The next interceptor then gets the record that the failed interceptor got.
* ``configure`` gets no secret options. If it raises an exception, the producer can't be created.

This module also imports the classes in ``interceptor.classes``. It calls ``configure`` and
``close`` of interceptors, serializers and partitioners (Java's ``Configurable`` and ``Closeable``).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, KafkaError, safe_text, warn
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.base.security.import_paths import place_of
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.producer_record import (
    NO_HEADERS,
    Headers,
    ProducerRecord,
    RecordMetadata,
    tp_of,
)
from spark_kafka_sink.protocol.cluster import ClusterResourceListener
from spark_kafka_sink.records.record_columns import RecordColumns

_log = logging.getLogger(__name__)

OPTION = "interceptor.classes"


class ProducerInterceptor:
    """The base class of interceptors. Each method does nothing until you override it. An
    interceptor need not inherit from this class.

    Each producer creates one object of every class in ``interceptor.classes``, without arguments.
    In a Spark job, each worker process has its own objects.

    ``on_send`` and ``on_send_columns`` run on the thread that sends. If they raise an Exception, a
    warning is logged, and the producer continues as if the method had returned its argument.

    ``on_acknowledgement`` runs on the network thread, which sends nothing until the method returns.
    So it must be fast. If it raises an exception, a warning is logged. For records that were never
    sent, it may run on the thread whose call has failed.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns ``record``, or another record to send instead of ``record``."""
        return record

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        """Returns ``columns``, or other columns with the same number of rows.

        Rows can be neither dropped nor added. The producer later compares the number of rows with
        the number of acknowledged records.
        """
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Called when a record of ``send`` was acknowledged or has failed. ``error`` is None if the
        record was acknowledged.

        Rows of ``send_columns`` cause one call for each batch. ``metadata.record_count`` is then
        the number of rows, and ``metadata.offset`` is the first offset of the batch. If the batch
        also has records of ``send``, the first offset can belong to such a record.

        The method may have a third parameter, for the headers of the record, which are read-only
        (KIP-512). For rows of ``send_columns``, these headers are empty.
        """

    def configure(self, configs: Mapping[str, object]) -> None:
        """Receives the producer's options under Java's names, without secrets. Called once, before
        the other methods.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


_METHODS = ("on_send", "on_send_columns", "on_acknowledgement", "close")


class Interceptors:
    """All interceptors of a producer, in the order of ``interceptor.classes``."""

    __slots__ = ("_acknowledged", "_columns", "_every", "_records", "cluster_listeners")

    def __init__(self, interceptors: Iterable[object]) -> None:
        every = self._every = list(interceptors)
        for one in every:
            if not any(callable(getattr(one, name, None)) for name in _METHODS):
                raise ConfigError(
                    f"{OPTION}: {type(one).__name__} has none of the methods {', '.join(_METHODS)}"
                )
        self._records = _having(every, "on_send")
        self._columns = _having(every, "on_send_columns")
        self._acknowledged = [
            (method, _takes_headers(method))
            for one in every
            if callable(method := getattr(one, "on_acknowledgement", None))
        ]
        #: The interceptors that get the cluster's id (ClusterResourceListener).
        self.cluster_listeners = [o for o in every if isinstance(o, ClusterResourceListener)]

    @classmethod
    def of(cls, given: Sequence[object]) -> Interceptors | None:
        """Creates the interceptors from the values of ``interceptor.classes``. Each value is an
        import path such as ``my_module.MyInterceptor``, a class, or an object.

        Returns None if ``given`` is empty. Raises ConfigError if a class can't be imported, if its
        constructor raises an exception, or if an object has no method of an interceptor. The
        interceptors that were created before the error are then closed.
        """
        if not given:
            return None
        made: list[object] = []
        try:
            made.extend(map(_made, given))
            return cls(made)
        except BaseException:
            for one in made:
                close_plugin(one, "interceptor")
            raise

    def configure(self, config: ProducerConfig) -> None:
        """Calls each interceptor's ``configure``. Raises ConfigError if a ``configure`` raises an
        exception.
        """
        for one in self._every:
            configure_plugin(one, OPTION, config)

    @staticmethod
    def check(paths: Sequence[str]) -> None:
        """Checks that each path of ``paths`` names a class that can be imported and that has a
        method of an interceptor. Raises ConfigError for the first path that does not.

        Creates no interceptor. The driver calls this method before the tasks start.
        """
        for path in paths:
            found = import_paths.find(path, OPTION)
            if not any(callable(getattr(found, name, None)) for name in _METHODS):
                raise ConfigError(
                    f"{OPTION}: {safe_text(path)} has none of the methods {', '.join(_METHODS)}"
                )

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Passes ``record`` through all interceptors in order. Returns the record of the last
        interceptor. An interceptor that raises an Exception, or that does not return a
        ProducerRecord, is skipped with a warning.
        """
        for one in self._records:
            try:
                changed = one.on_send(record)  # type: ignore[attr-defined]  # see _having
                if not isinstance(changed, ProducerRecord):
                    raise TypeError
            except Exception as error:  # noqa: BLE001 - a user's code must not stop records
                warn(
                    _log,
                    Kind.USER_CODE,
                    "Error executing interceptor onSend callback for topic: %s, partition: %s: %s",
                    record.topic,
                    record.partition,
                    place_of(error),
                )
            else:
                record = changed
        return record

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        """Passes ``columns`` through all interceptors in order. Returns the columns of the last
        interceptor. An interceptor that raises an Exception, or that returns another number of
        rows, is skipped with a warning.
        """
        for one in self._columns:
            try:
                changed = one.on_send_columns(columns)  # type: ignore[attr-defined]  # see _having
                if not isinstance(changed, RecordColumns) or changed.rows != columns.rows:
                    raise TypeError
            except Exception as error:  # noqa: BLE001 - a user's code must not stop rows
                warn(
                    _log,
                    Kind.USER_CODE,
                    "Error executing interceptor onSend callback for %s rows: %s",
                    columns.rows,
                    place_of(error),
                )
            else:
                columns = changed
        return columns

    def on_acknowledgement(
        self, metadata: RecordMetadata, error: KafkaError | None, headers: Headers = NO_HEADERS
    ) -> None:
        """Calls ``on_acknowledgement`` of all interceptors, for one record of ``send``, or for one
        batch with rows of ``send_columns``.
        """
        for method, takes_headers in self._acknowledged:
            try:
                method(metadata, error, *((headers,) if takes_headers else ()))
            except BaseException as raised:  # noqa: BLE001 - the network thread must not die of it
                warn(
                    _log,
                    Kind.USER_CODE,
                    "Error executing interceptor onAcknowledgement callback: %s",
                    place_of(raised),
                )

    def on_send_error(self, record: ProducerRecord, error: KafkaError) -> None:
        """Calls ``on_acknowledgement`` of all interceptors for a ``record`` that failed before it
        was added to a batch. Makes the headers of the record read-only.
        """
        headers = record.headers
        assert isinstance(headers, Headers)
        headers.set_read_only()
        self.on_acknowledgement(RecordMetadata.empty(tp_of(record)), error, headers)

    def close(self) -> None:
        for one in self._every:
            close_plugin(one, "interceptor")


def _made(given: object) -> object:
    """Returns the interceptor for one value of ``interceptor.classes``: an import path, a class or
    an object.
    """
    if isinstance(given, str):
        return import_paths.make(given, OPTION)
    if isinstance(given, type):
        return import_paths.made_of(given, OPTION, given.__qualname__)
    return given


def _takes_headers(method: Callable[..., object]) -> bool:
    """True if ``on_acknowledgement`` has a third parameter for the headers (KIP-512)."""
    try:
        inspect.signature(method).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def _having(interceptors: Iterable[object], name: str) -> tuple[object, ...]:
    return tuple([one for one in interceptors if callable(getattr(one, name, None))])


def configure_plugin(plugin: object, option: str, config: ProducerConfig, *more: object) -> None:
    """Calls ``plugin.configure(configs, *more)``. ``configs`` has all checked options under Java's
    names, without secrets. Does nothing if ``plugin`` has no such method.

    Raises ConfigError if ``configure`` raises an exception. The error does not contain the text of
    this exception, because the text may contain a secret.
    """
    method = getattr(plugin, "configure", None)
    if not callable(method):
        return
    from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS  # only needed with plugins

    configs = {
        name: getattr(config, one.attribute)
        for name, one in PRODUCER_OPTIONS.items()
        if not one.secret and hasattr(config, one.attribute)
    }
    try:
        method(configs, *more)
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        why = place_of(error)
    else:
        return
    raise ConfigError(f"{option}: {type(plugin).__name__}.configure raised {why}")


def close_plugin(plugin: object, what: str) -> None:
    """Calls ``plugin.close()``. Does nothing if ``plugin`` has no such method. An exception of
    ``close`` is logged and not raised, so that other plugins are also closed. ``what`` names the
    kind of plugin in the log, such as "interceptor".
    """
    method = getattr(plugin, "close", None)
    if not callable(method):
        return
    try:
        method()
    except Exception as error:  # noqa: BLE001 - see above
        warn(_log, Kind.USER_CODE, "Failed to close producer %s: %s", what, place_of(error))
