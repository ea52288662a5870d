"""Runs a real Apache Kafka (KRaft, one or three nodes) on this machine, without Docker, for the
demo and for tests. It needs Python and a JVM of version 17 or newer.

When a local Kafka is first used on a machine, Maven or Ivy downloads the jars of the server. (Ivy
is a part of PySpark.) ``python -m spark_kafka_sink.local_kafka`` runs a Kafka in the foreground.

* ``cluster``, ``node``: start and stop brokers. They use ``ports``, ``probe``,
  ``broker_process_group`` and ``parent_watchdog``.
* ``server_properties``: the configuration of the brokers.
* ``secure``, ``certificates``, ``secure_files``: TLS, users and passwords.
* ``installation``, ``distribution``, ``java``: the jars and the JVM.
* ``registry``: a schema registry.
* ``pytest_plugin``: fixtures for pytest.

The package imports only the standard library. There are two exceptions: a secure cluster needs
``cryptography``, and ``pytest_plugin`` needs pytest. Only the package ``demo`` imports this
package.
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
