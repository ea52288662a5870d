"""User code before and after the sending of a record (Java's ``ProducerInterceptors``).

Owns: the interface of an interceptor, the import of ``interceptor.classes``, and their isolation:
an exception is logged, and the next interceptor gets the previous value. They run before the first
step of a record's way and after its last. Also the calls of Java's ``Configurable`` and
``Closeable``, for these and for serializers and partitioners. Never: a payload in a log line; any
cost when there is no interceptor; secret options: a class that needs one must obtain it itself.
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
    """Base of interceptors; each method does nothing until it is overridden.

    A class named in ``interceptor.classes`` is made once for each producer (in a Spark job: in
    each worker process), without arguments. It need not derive from this one. ``on_send`` and
    ``on_send_columns`` run on the thread that sends, ``on_acknowledgement`` on the network
    thread, which waits for it: be quick.
    """

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """``record``, or another one to send in its place."""
        return record

    def on_send_columns(self, columns: RecordColumns) -> RecordColumns:
        """``columns``, or others with as many rows: no row may be dropped or added, because rows
        in and rows acknowledged are compared.
        """
        return columns

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        """A record of ``send`` was written or failed. Of rows that came as columns: a batch of
        them (``metadata.record_count``, from ``metadata.offset`` on).

        A method that takes a third argument gets the record's Headers there (KIP-512), read-only;
        of columns, none.
        """

    def configure(self, configs: Mapping[str, object]) -> None:
        """The producer's options by Java's names, secrets left out; before anything else."""

    def close(self) -> None:
        """The producer is closed."""


_METHODS = ("on_send", "on_send_columns", "on_acknowledgement", "close")


class Interceptors:
    """The interceptors of a producer, in the order of the option."""

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
        #: Those that get the cluster's id (ClusterResourceListener).
        self.cluster_listeners = [o for o in every if isinstance(o, ClusterResourceListener)]

    @classmethod
    def of(cls, paths: Sequence[str]) -> Interceptors | None:
        """Those that ``paths`` name; None when there are none. ConfigError for a wrong path."""
        if not paths:
            return None
        return cls([import_paths.make(path, OPTION) for path in paths])

    def configure(self, config: ProducerConfig) -> None:
        """Call each one's ``configure``. ConfigError when one raises."""
        for one in self._every:
            configure_plugin(one, OPTION, config)

    @staticmethod
    def check(paths: Sequence[str]) -> None:
        """ConfigError for a path that can't be imported. Makes none of them: for the driver."""
        for path in paths:
            found = import_paths.find(path, OPTION)
            if not any(callable(getattr(found, name, None)) for name in _METHODS):
                raise ConfigError(
                    f"{OPTION}: {safe_text(path)} has none of the methods {', '.join(_METHODS)}"
                )

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """``record``, passed through every interceptor in turn."""
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
        """``columns``, passed through every interceptor in turn; the row count is unchanged."""
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
        """A record, or a batch of columns, has its outcome."""
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
        """``record`` failed before it was appended."""
        headers = record.headers
        assert isinstance(headers, Headers)
        headers.set_read_only()
        self.on_acknowledgement(RecordMetadata.empty(tp_of(record)), error, headers)

    def close(self) -> None:
        for one in self._every:
            close_plugin(one, "interceptor")


def _takes_headers(method: Callable[..., object]) -> bool:
    """False for the form of before KIP-512."""
    try:
        inspect.signature(method).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def _having(interceptors: Iterable[object], name: str) -> tuple[object, ...]:
    return tuple([one for one in interceptors if callable(getattr(one, name, None))])


def configure_plugin(plugin: object, option: str, config: ProducerConfig, *more: object) -> None:
    """``plugin.configure(configs, *more)``: every option but secrets, checked, by Java's names.

    ConfigError, without the text of what it raised.
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
    """``plugin.close()``; what it raises is logged, because the others must be closed, too."""
    method = getattr(plugin, "close", None)
    if not callable(method):
        return
    try:
        method()
    except Exception as error:  # noqa: BLE001 - see above
        warn(_log, Kind.USER_CODE, "Failed to close producer %s: %s", what, place_of(error))
