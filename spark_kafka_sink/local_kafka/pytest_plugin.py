"""Pytest fixtures for your own tests: a real Kafka that runs until the end of the test session.

The fixtures are :func:`kafka_cluster`, :func:`kafka_bootstrap`, :func:`schema_registry_url`, and
:func:`new_kafka_cluster`. The extra ``local-kafka`` installs pytest. To use these fixtures, write
in the topmost ``conftest.py``::

    pytest_plugins = "spark_kafka_sink.local_kafka.pytest_plugin"

(The plugin is no ``pytest11`` entry point, because every run of pytest would load such a plugin.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink.local_kafka.cluster import KafkaCluster
from spark_kafka_sink.local_kafka.registry.schema_registry import SchemaRegistry


@pytest.fixture(scope="session")
def new_kafka_cluster() -> Callable[[], KafkaCluster]:
    """A function that creates the cluster for the tests. By default, the cluster has one node, and
    creates a topic when a producer first writes to this topic.

    For another cluster, override this fixture in ``conftest.py`` with the scope ``session``. For
    example, return ``lambda: KafkaCluster(3)``.
    """
    return lambda: KafkaCluster(overrides={"auto.create.topics.enable": "true"})


@pytest.fixture(scope="session")
def kafka_cluster(new_kafka_cluster: Callable[[], KafkaCluster]) -> Iterator[KafkaCluster]:
    """A running cluster. The first test that uses the fixture starts it.

    With pytest-xdist, each process has its own cluster. Raises LocalKafkaError if the cluster can't
    start.
    """
    with new_kafka_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka_cluster: KafkaCluster) -> str:
    """The value of ``bootstrap.servers`` for the cluster."""
    return kafka_cluster.bootstrap


@pytest.fixture(scope="session")
def schema_registry_url() -> Iterator[str]:
    """The URL of a schema registry, for ``schema.registry.url``. The registry stores its schemas in
    memory. The first test that uses the fixture starts it.

    Raises LocalKafkaError if the registry can't start.
    """
    with SchemaRegistry() as registry:
        yield registry.url
