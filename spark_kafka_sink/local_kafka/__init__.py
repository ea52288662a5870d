"""A real Apache Kafka (KRaft, one or three nodes) on this machine, without Docker.

The demo and the tests use it. It needs Python, a JVM of version 17 or newer, and on the first use
either PySpark or Maven to fetch the server's jars. This package imports only the standard library
(with ``secure`` also ``cryptography``), and no module of the sink imports this package.
``python -m spark_kafka_sink.local_kafka`` runs a Kafka in the foreground, with ``--secure`` a Kafka
with TLS, SASL and ACLs.

``cluster`` and ``node`` start and stop the brokers, with ``ports``, ``probe``,
``broker_process_group`` and ``parent_watchdog``. ``server_properties`` has the brokers'
configuration. ``certificates`` and ``secure_files`` create the files for ``secure``.
``installation`` fetches a ``distribution``, with ``java``. ``registry`` is a schema registry.
``pytest_plugin`` has the fixtures.
"""

from __future__ import annotations

from spark_kafka_sink.local_kafka.cluster import KafkaCluster
from spark_kafka_sink.local_kafka.distribution import KAFKA_3_VERSION, KAFKA_VERSION
from spark_kafka_sink.local_kafka.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.installation import Installation, prepare
from spark_kafka_sink.local_kafka.node import KafkaNode, NodeState
from spark_kafka_sink.local_kafka.registry.schema_registry import SchemaRegistry
from spark_kafka_sink.local_kafka.secure import Security

__all__ = [
    "KAFKA_3_VERSION",
    "KAFKA_VERSION",
    "Installation",
    "KafkaCluster",
    "KafkaNode",
    "LocalKafkaError",
    "NodeState",
    "SchemaRegistry",
    "Security",
    "prepare",
]
