"""The argument of ``KafkaProducer``: a parsed config, or options by Java's names.

Owns: separating text from objects (a serializer or an interceptor may be either). Never: the
meaning of an option (``config/producer_config.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import warn_once
from spark_kafka_sink.producer import plugins
from spark_kafka_sink.producer.interceptors import OPTION as INTERCEPTORS
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.serialization import Serializer, serializer

_log = logging.getLogger(__name__)

_KEY, _VALUE = "key.serializer", "value.serializer"


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """A checked config, and the objects that its user gave or named."""

    config: ProducerConfig
    serializers: tuple[Serializer, Serializer]
    interceptors: Interceptors | None

    @classmethod
    def of(cls, given: ProducerConfig | Mapping[str, object]) -> ProducerOptions:
        """Raises ConfigError for invalid options. Logs the warnings of options."""
        objects: dict[str, object] = {}
        if isinstance(given, ProducerConfig):
            config = given
        else:
            texts: dict[str, object] = {}
            for name, value in given.items():
                key = name.lower()
                is_object = (key in (_KEY, _VALUE) and not isinstance(value, str)) or (
                    key == INTERCEPTORS and _has_objects(value)
                )
                (objects if is_object else texts)[key if is_object else name] = value
            config = ProducerConfig.parse(texts)
            warn_once(_log, config.warnings)
        named = objects.get(INTERCEPTORS)
        interceptors = (
            Interceptors.of(config.interceptor_classes)
            if named is None
            else Interceptors([one() if isinstance(one, type) else one for one in _listed(named)])
        )
        if interceptors is not None:
            interceptors.configure(config)
        return cls(
            config,
            (
                _serializer(objects.get(_KEY, config.key_serializer), _KEY, config),
                _serializer(objects.get(_VALUE, config.value_serializer), _VALUE, config),
            ),
            interceptors,
        )


def _serializer(given: object, option: str, config: ProducerConfig) -> Serializer:
    """``configure`` is called for one created here, with whether it is for keys; an object is used
    as it is, as in Java.
    """
    made = serializer(given, option)
    if made is not given:
        plugins.configure(made, option, config, option == _KEY)
    return made


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _has_objects(value: object) -> bool:
    return not all(isinstance(one, str) for one in _listed(value))
