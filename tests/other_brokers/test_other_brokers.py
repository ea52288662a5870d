"""The scenarios of ``make compat`` that need no Spark, on franz-go's kfake.

It is another implementation of Kafka's protocol, with transactions of version 2, which starts in a
second.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

import pytest

from spark_kafka_sink import KafkaProducer, ProducerRecord
from spark_kafka_sink.base.errors import UnsupportedVersionError
from spark_kafka_sink.errors import CommitOutcomeUnknownError, DeliveryError
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.results import Commit
from tests.other_brokers import scenarios
from tests.other_brokers.__main__ import PAGE, SHORT_PAGE, read_results, short_table, table
from tests.other_brokers.brokers import (
    NO_API_VERSIONS_4,
    VERSION_1,
    has_go,
    kfake,
    kfake_program,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def _program() -> None:
    """Without Go the tests are skipped; under CI, which has Go, it must build."""
    if not has_go():
        pytest.skip("kfake needs Go")
    try:
        kfake_program()
    except subprocess.CalledProcessError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"kfake could not be built: {error.stderr[-500:]}")


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest, _program: None) -> Iterator[str]:
    with kfake(*getattr(request, "param", ())) as address:
        yield address


def without(api: int) -> tuple[str, ...]:
    return ("-latest", f"{api}=-1")


WITHOUT_PRODUCER_IDS, WITHOUT_LISTS, WITHOUT_DESCRIPTIONS = map(without, (22, 66, 65))


@pytest.mark.parametrize(
    ("bootstrap", "said"),
    [
        ((), {scenarios.OK}),
        (("-kafka", "3.0"), {scenarios.OK}),
        (VERSION_1, {scenarios.OK}),
        (NO_API_VERSIONS_4, {scenarios.OK}),
        # On a slow machine the timeout is over before the rows are looked for.
        (WITHOUT_LISTS, {scenarios.OK, "visible after the timeout"}),
    ],
    indirect=["bootstrap"],
)
def test_a_driver_that_is_killed_loses_and_doubles_nothing(bootstrap: str, said: set[str]) -> None:
    assert scenarios.killed_driver(bootstrap) in said


@pytest.mark.parametrize(
    ("bootstrap", "check", "said"),
    [
        ((), scenarios.check, scenarios.OK),
        ((), scenarios.check_of_exactly_once, "warns: KP0610"),
        (VERSION_1, scenarios.check_of_exactly_once, "warns: KP0610"),
        (NO_API_VERSIONS_4, scenarios.check_of_exactly_once, "warns: KP0610"),
        (WITHOUT_PRODUCER_IDS, scenarios.check, "red: KP1035"),
        (WITHOUT_PRODUCER_IDS, scenarios.check_of_exactly_once, "red: KP1035"),
        (WITHOUT_LISTS, scenarios.check_of_exactly_once, "warns: KP0623, KP0610"),
        (WITHOUT_DESCRIPTIONS, scenarios.check_of_exactly_once, "red: KP1035"),
    ],
    indirect=["bootstrap"],
)
def test_the_check_finds_what_a_service_lacks(
    bootstrap: str, check: Callable[[str], str], said: str
) -> None:
    assert check(bootstrap) == said


@pytest.mark.parametrize("bootstrap", [WITHOUT_PRODUCER_IDS], indirect=True)
def test_the_error_of_a_service_without_ids_names_what_works(bootstrap: str) -> None:
    """The producer asks for an id in the background. If this fails before the record is appended,
    send() raises the failed producer's DeliveryError. Otherwise the future has the request's error.
    """
    topic = scenarios.new_topic(bootstrap)
    with KafkaProducer({"bootstrap.servers": bootstrap}) as producer:
        with pytest.raises((UnsupportedVersionError, DeliveryError)) as first:
            producer.send(ProducerRecord(topic, b"a")).result(60)
        with pytest.raises(DeliveryError) as second:
            producer.send(ProducerRecord(topic, b"a"))
    for error in (first.value, second.value):
        assert error.kind.kp_code == "KP1035"
        assert error.hint is not None
        assert "enable.idempotence=false" in error.hint
    with KafkaProducer({"bootstrap.servers": bootstrap, "enable.idempotence": False}) as producer:
        producer.send(ProducerRecord(topic, b"a")).result(60)
    assert scenarios.committed(bootstrap, topic) == ["a"]


def test_the_hint_after_a_timeout_works_when_it_is_followed(bootstrap: str) -> None:
    """kfake says Empty with the next epoch of what timed out, which is no outcome."""
    query = scenarios.Query(bootstrap)
    written = query.dies(0, decided=True)
    wait_for(lambda: not query.is_open(written), 120, "the timeout")
    with pytest.raises(CommitOutcomeUnknownError, match="KP0610") as caught:
        query.batch(0)
    assert caught.value.hint is not None
    assert "initialized again" in caught.value.hint
    with query.driver() as driver:
        operator = Operator(CommitLog(driver.client, "__kprod_commits"), driver.client)
        operator.resolve(operator.plan_resolve(query.key, 0, done=False, force=True))
    assert query.batch(0) is Commit.COMMITTED
    assert query.has(0)


def test_the_pages_have_the_results_that_were_written() -> None:
    assert table(read_results()) in PAGE.read_text("utf-8")
    assert short_table(read_results()) in SHORT_PAGE.read_text("utf-8")
