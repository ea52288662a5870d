"""Fixtures that are dear: a real broker, three of them, a Spark session. Each starts on first use.

Tests that use one are marked (broker, cluster, spark) by that alone. Under CI such a test may not
be skipped: a skip is reported as a failure.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from spark_kafka_sink.base.security import allow_lists
from spark_kafka_sink.local_kafka import KAFKA_3_VERSION
from tests.real_kafka import (
    Consumed,
    RealKafka,
    consume_topic,
    heal,
    local_broker,
    one_broker,
)
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.secure_kafka import SecureKafka

# Spark starts Python workers by these names, and plain "python3" is some other Python.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
# Also of Sparks in other processes: spark-defaults.conf.
os.environ["SPARK_CONF_DIR"] = str(Path(__file__).with_name("spark_conf"))

# What a registry answered stays in files, which no test may find of another run.
_SCHEMAS = tempfile.TemporaryDirectory(prefix="kprod-schemas-")
os.environ["KPROD_SCHEMA_CACHE"] = _SCHEMAS.name

# A shell without job control starts its background commands with SIGINT ignored, and their children
# inherit that: a test that sends Ctrl-C to a program would wait for the program's end forever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example that is slow on a busy machine is no failure. The rest is the profile that Hypothesis
# has chosen by itself: "ci" under CI.
settings.register_profile("kprod", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kprod")

# What is collected stays. The garbage collector's look at all of it takes a third of a second, and
# there would be many, a dozen in the collection alone.
gc.disable()

_MARKER_OF_FIXTURE = {
    "kafka": "broker",
    "kafka_v1": "broker",
    "kafka_3_9": "broker",
    "secure_kafka": "broker",
    "registry": "broker",
    "kafka3": "cluster",
    "spark": "spark",
    # tests/exactly_once: brokers behind proxies, drivers to be killed.
    "_world": "faults",
    "_old_world": "faults",
    "_ruled_world": "faults",
}
#: What a machine must have for them; a skip of theirs is an error under CI.
_NEEDS = {"broker", "cluster", "spark"}
_NOT_BEGUN = pytest.StashKey[list[str]]()


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test with a ``scene`` is its play, and a ``simulated`` test is what its ``world`` runs.

    Time passes only when the test waits.
    """
    if isinstance(item, pytest.Function):
        test = item.obj
        if "scene" in item.fixturenames:
            item.obj = partial(_in_scene, test)
        elif "world" in item.fixturenames and item.get_closest_marker("simulated"):
            item.obj = partial(_in_world, test)


def _in_scene(test: Callable[..., None], **given: Any) -> None:
    given["scene"].perform(lambda: test(**given))


def _in_world(test: Callable[..., None], **given: Any) -> None:
    ran: list[bool] = []

    def body() -> None:
        test(**given)
        ran.append(True)

    given["world"].run(body)
    assert ran, "the run of this world does not run the test"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for fixture, marker in _MARKER_OF_FIXTURE.items():
            if fixture in fixtures:
                item.add_marker(marker)
        # The first one on a machine fetches that Kafka; a long one is longer on a busy machine.
        slow = {"long", "faults", "cluster"} & {marker.name for marker in item.iter_markers()}
        if "kafka_3_9" in fixtures or (slow and item.get_closest_marker("timeout") is None):
            item.add_marker(pytest.mark.timeout(600))
        if PATIENCE != 1:
            own = item.get_closest_marker("timeout")
            limit = own.args[0] if own else item.config.getini("timeout")
            if limit:  # a run with another configuration may have none
                item.add_marker(pytest.mark.timeout(float(limit) * PATIENCE), append=False)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """After KPROD_TESTS_UNTIL (seconds since 1970) no further test begins."""
    if time.time() < float(os.environ.get("KPROD_TESTS_UNTIL", "inf")):
        return None
    item.config.stash.setdefault(_NOT_BEGUN, []).append(item.nodeid)
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tests that were not begun in time, and the seed of the order; pytest-randomly shows it in
    a header that ``-q`` leaves out.
    """
    if late := terminalreporter.config.stash.get(_NOT_BEGUN, []):
        files = ", ".join(sorted({test.partition("::")[0] for test in late}))
        terminalreporter.write_line(f"not begun in time: {len(late)} tests of {files}")
    seed = getattr(terminalreporter.config.option, "randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"this order again: --randomly-seed={seed}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    report = yield
    needs = sorted({m.name for m in item.iter_markers()} & _NEEDS)
    if os.environ.get("CI") and needs and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"a {'/'.join(needs)} test was skipped under CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def kafka() -> Iterator[RealKafka]:
    """One real broker for the whole session. Use topics of your own: others use it too."""
    with one_broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_v1() -> Iterator[RealKafka]:
    """A 4.x broker whose cluster writes transactions of version 1."""
    with local_broker(transaction_version=1) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_3_9() -> Iterator[RealKafka]:
    """A 3.9 broker: transactions of version 1, and older versions of most requests."""
    with local_broker(KAFKA_3_VERSION, transaction_version=1) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry() -> Iterator[str]:
    """The address of a real schema registry for the whole session. Use subjects of your own."""
    from spark_kafka_sink.local_kafka import LocalKafkaError, SchemaRegistry

    try:
        running = SchemaRegistry()
        running.start()
    except LocalKafkaError as error:
        pytest.skip(f"no schema registry: {error}")
    yield running.url
    running.stop()


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """One local broker with TLS, SASL and ACLs for the whole session."""
    from tests.secure_kafka import secure_broker

    with secure_broker(tmp_path_factory.mktemp("certificates")) as broker:
        yield broker


@pytest.fixture(scope="session")
def _three_nodes() -> Iterator[RealKafka]:
    from spark_kafka_sink.local_kafka import KafkaCluster

    with KafkaCluster(3) as cluster:
        yield RealKafka(cluster.bootstrap, cluster)


@pytest.fixture
def kafka3(_three_nodes: RealKafka) -> Iterator[RealKafka]:
    """Three real nodes, with per-node controls; healed before and after each test."""
    assert _three_nodes.cluster is not None
    heal(_three_nodes.cluster)
    yield _three_nodes
    heal(_three_nodes.cluster)


@pytest.fixture
def consume(request: pytest.FixtureRequest) -> Callable[..., Consumed]:
    """``consume(topic, bootstrap=..., isolation=...)``: a whole topic, by an independent reader.

    Without ``bootstrap`` it reads from the broker whose fixture the test uses.
    """

    def read(topic: str, *, bootstrap: str | None = None, **options: Any) -> Consumed:
        if bootstrap is None:
            fixture = "kafka3" if "kafka3" in request.fixturenames else "kafka"
            bootstrap = request.getfixturevalue(fixture).bootstrap
        return consume_topic(bootstrap, topic, **options)

    return read


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic Spark session with ``kprod`` registered."""
    from pyspark.sql import SparkSession

    import spark_kafka_sink

    home = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("spark_kafka_sink tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.local.dir", str(home / "local"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    spark_kafka_sink.register(session)
    yield session
    session.stop()


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """``limit(variable, text)``: the process has imported the package with these lists."""
    environment: dict[str, str] = {}

    def to(variable: str, text: str) -> None:
        environment[variable] = text
        monkeypatch.setattr(allow_lists, "_LISTS", allow_lists.read_lists(environment))

    return to
