"""The lifecycle of a user's classes in a producer: configured before use, closed with it.

Owns: the calls of Java's ``Configurable`` and ``Closeable``, for serializers, partitioners and
interceptors; either method may be missing. Never: the class's other methods, and secret
options: a class that needs one must obtain it itself.
"""

from __future__ import annotations

import logging

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError, warn
from spark_kafka_sink.security.import_paths import place_of

_log = logging.getLogger(__name__)


def configure(plugin: object, option: str, config: ProducerConfig, *more: object) -> None:
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


def close(plugin: object, what: str) -> None:
    """``plugin.close()``; what it raises is logged, because the others must be closed, too."""
    method = getattr(plugin, "close", None)
    if not callable(method):
        return
    try:
        method()
    except Exception as error:  # noqa: BLE001 - see above
        warn(_log, Kind.USER_CODE, "Failed to close producer %s: %s", what, place_of(error))
