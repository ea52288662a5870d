"""Runs user code before and after the sending of a record (Java's ``ProducerInterceptors``).

Owns: the interface of an interceptor; the import of ``interceptor.classes``; the isolation of
interceptors: if one raises an exception, the exception is logged, and the next interceptor gets the
previous value; the calls of ``configure`` and ``close`` (Java's ``Configurable`` and ``Closeable``)
for interceptors, serializers and partitioners. Never: a payload in a log line; any cost without
interceptors; secret options, which a class must obtain itself.

Interceptors run before the first step of a record's way and after its last step.
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
    """The base class of interceptors. Each method does nothing until you override it.

    Each producer creates one object of every class in ``interceptor.classes``, without arguments.
    In a Spark job, each worker process has its own object. An interceptor need not inherit from
    this class. ``on_send`` and ``on_send_columns`` run on the thread that sends.
    ``on_acknowledgement`` runs on the network thread, which waits for the method: be quick.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Returns ``record``, or another record to send in its place."""
        return record

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        """Returns ``columns``, or other columns with as many rows. No row may be dropped or added,
        because the producer compares the number of rows with the number of acknowledged rows.
        """
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """Called when a record of ``send`` was written or has failed. For rows of columns it is
        called once for each batch of ``metadata.record_count`` rows, from ``metadata.offset`` on.

        If the method has a third parameter, it receives the record's Headers (KIP-512), which are
        read-only. For columns it receives no headers.
        """

    def configure(self, configs: Mapping[str, object]) -> None:
        """Receives the producer's options by Java's names, without secrets, before any other
        call.
        """

    def close(self) -> None:
        """Called when the producer is closed."""


_METHODS = ("on_send", "on_send_columns", "on_acknowledgement", "close")


class Interceptors:
    """The interceptors of a producer, in the order of ``interceptor.classes``."""

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
    def of(cls, paths: Sequence[str]) -> Interceptors | None:
        """Creates the interceptors with these import ``paths``. Returns None if there are no paths.
        Raises ConfigError for a wrong path.
        """
        if not paths:
            return None
        return cls([import_paths.make(path, OPTION) for path in paths])

    def configure(self, config: ProducerConfig) -> None:
        """Calls each interceptor's ``configure``. Raises ConfigError if one of them raises an
        exception.
        """
        for one in self._every:
            configure_plugin(one, OPTION, config)

    @staticmethod
    def check(paths: Sequence[str]) -> None:
        """Checks on the driver that the interceptors can be imported. Creates no interceptor.
        Raises ConfigError for an interceptor that can't be imported.
        """
        for path in paths:
            found = import_paths.find(path, OPTION)
            if not any(callable(getattr(found, name, None)) for name in _METHODS):
                raise ConfigError(
                    f"{OPTION}: {safe_text(path)} has none of the methods {', '.join(_METHODS)}"
                )

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Passes ``record`` through every interceptor in order, and returns the resulting
        record.
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
        """Passes ``columns`` through every interceptor in order, and returns the resulting columns,
        which have as many rows.
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
        """Notifies the interceptors of the outcome of a record, or of a batch of columns."""
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
        """Notifies the interceptors of a ``record`` that failed before it was appended."""
        headers = record.headers
        assert isinstance(headers, Headers)
        headers.set_read_only()
        self.on_acknowledgement(RecordMetadata.empty(tp_of(record)), error, headers)

    def close(self) -> None:
        for one in self._every:
            close_plugin(one, "interceptor")


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
    """Calls ``plugin.configure(configs, *more)`` with all checked options except secrets, by Java's
    names. Raises ConfigError without the text of the plugin's exception.
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
    """Calls ``plugin.close()``. Logs an exception instead of raising it, so that other plugins are
    also closed.
    """
    method = getattr(plugin, "close", None)
    if not callable(method):
        return
    try:
        method()
    except Exception as error:  # noqa: BLE001 - see above
        warn(_log, Kind.USER_CODE, "Failed to close producer %s: %s", what, place_of(error))
