"""Runs a real Apache Kafka (KRaft, one or three nodes) on this machine, without Docker, for the
demo and for tests.

A local Kafka needs Python and a JVM of version 17 or newer. PySpark or Maven fetches the jars of
the server when a local Kafka is first used on a machine. The package imports only the standard
library. There are two exceptions: a secure cluster needs ``cryptography``, and ``pytest_plugin``
needs pytest. Only the package ``demo`` imports this package. ``python -m
spark_kafka_sink.local_kafka`` runs a Kafka in the foreground. With ``--secure``, this Kafka has
TLS, SASL and ACLs.

``cluster`` and ``node`` start and stop brokers. They use ``ports``, ``probe``,
``broker_process_group`` and ``parent_watchdog``. ``server_properties`` creates the configuration of
the brokers. ``secure`` and ``certificates`` create certificates and users, and ``secure_files``
writes them for Docker. ``installation`` prepares the jars of a ``distribution`` and finds ``java``.
``registry`` is a schema registry. ``pytest_plugin`` has fixtures for pytest.
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
