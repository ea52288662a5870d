"""The trial of exactly-once on services that do not keep a promise: it is named."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace

import pytest
from kio.static.primitive import i8

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.exactly_once_trial import OF_TRIAL, trial_steps
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.requests import APIS
from tests.simulation.scene import scene_of
from tests.simulation.spark_world import LOG_TOPIC

CONFIG = parse_sink_config(
    {
        "kafka.bootstrap.servers": "broker:9092",
        "deliveryGuarantee": "exactly-once",
        "commitLogTopic": LOG_TOPIC,
    }
)
TIMEOUT_MS = 20_000


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def scene(request):
    """Topics that set no cleanup.policy delete."""
    return scene_of(request.param, nodes=1, broker_configs={"cleanup.policy": "delete"})


def tried(scene):
    """The rows by name; nothing is open or there afterwards."""
    with scene.client() as client, closing(trial_steps(client, CONFIG, TIMEOUT_MS)) as trial:
        steps = {step.name: step for step in trial}
    scene.control.check()
    return steps


def trial_topics(scene):
    return [topic for topic in scene.cluster.topics if topic.startswith(f"{LOG_TOPIC}-check-")]


def test_a_cluster_that_keeps_them_is_green(scene):
    steps = tried(scene)
    assert tuple(steps) == OF_TRIAL
    assert {step.state for step in steps.values()} == {StepState.OK}, steps
    assert trial_topics(scene) == []


def worked_on(scene, request, **body):
    """What a service answers that takes the request for another one."""
    name = getattr(request.body, "transactional_id", None)
    brokers = scene.cluster.brokers
    node = next(n for n in brokers if scene.cluster.coordinators.coordinates(n, name or ""))
    other = replace(request, body=replace(request.body, **body))
    return APIS[request.api].handle(scene.cluster, node, other)


def commits_what_is_aborted(scene, request):
    return worked_on(scene, request, committed=True)


def aborts_what_is_committed(scene, request):
    return worked_on(scene, request, committed=False)


def ignores_configs(scene, request):
    return worked_on(
        scene, request, topics=tuple(replace(topic, configs=()) for topic in request.body.topics)
    )


def shows_open_transactions(scene, request):
    """As one that knows no last stable offset."""
    answer = worked_on(scene, request, isolation_level=i8(0))
    (topic,) = answer.responses
    (partition,) = topic.partitions
    shown = replace(partition, last_stable_offset=partition.high_watermark)
    return replace(answer, responses=(replace(topic, partitions=(shown,)),))


def commits_what_a_new_owner_finds(scene, request):
    """Instead of an abort."""
    name = request.body.transactional_id
    found = scene.cluster.transactions.find(name)
    producer = (found.producer_id, found.epoch)
    version = 2 if scene.cluster.transaction_version == 2 else 0
    now = scene.scheduler.now_ms()
    scene.cluster.transactions.end(name, producer, commit=True, version=version, now=now)
    return APIS[request.api].refuse(scene.cluster, request, ErrorCode.CONCURRENT_TRANSACTIONS)


SEES_COMMITTED = {"where": lambda request: request.body.isolation_level == 1}


@pytest.mark.parametrize(
    ("api", "answer", "nth", "row", "said"),
    [
        (ApiKey.CREATE_TOPICS, ErrorCode.POLICY_VIOLATION, 1, "trial topic", "POLICY_VIOLATION"),
        (ApiKey.CREATE_TOPICS, ignores_configs, 1, "trial topic", "would lose decisions"),
        (
            ApiKey.DESCRIBE_TRANSACTIONS,
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            1,
            "open transaction",
            "a commit could not find out",
        ),
        (ApiKey.FETCH, shows_open_transactions, 1, "aborted row", "before it is committed"),
        (ApiKey.END_TXN, commits_what_is_aborted, 1, "aborted row", "a row that was aborted"),
        (ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE, 1, "aborted row", "INVALID_TXN_STATE"),
        (ApiKey.END_TXN, ErrorCode.NONE, 2, "committed row", "markers of 2 ended"),
        (ApiKey.END_TXN, aborts_what_is_committed, 2, "committed row", "does not see exactly"),
        (ApiKey.END_TXN, ErrorCode.NONE, 3, "fencing", "a fenced epoch was accepted"),
        (ApiKey.INIT_PRODUCER_ID, commits_what_a_new_owner_finds, 4, "fencing", "sees the row of"),
    ],
    ids=[
        "no compacted topic",
        "a topic without its configs",
        "not described",
        "open is visible",
        "abort commits",
        "no abort",
        "no commit",
        "commit aborts",
        "no fencing",
        "fencing commits",
    ],
)
def test_a_promise_that_is_not_kept_is_named(scene, api, answer, nth, row, said):
    filters = SEES_COMMITTED if api is ApiKey.FETCH else {}
    if callable(answer) and not isinstance(answer, ErrorCode):
        scene.control.answer(api, lambda request: answer(scene, request), nth=nth, **filters)
    else:
        scene.control.answer(api, answer, nth=nth)
    steps = tried(scene)
    red = [step for step in steps.values() if step.state is StepState.FAILED]
    assert [step.name for step in red] == [row], red
    assert said in red[0].said
    assert red[0].code
    assert list(steps)[-1] == "clean-up"
    assert trial_topics(scene) == []


def test_an_end_without_an_answer_is_named(scene):
    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False)
    found = tried(scene)["aborted row"]
    assert found.state is StepState.FAILED
    assert found.said.endswith("got no clear answer")
    assert trial_topics(scene) == []


def test_a_service_that_forgets_when_one_began_is_a_warning(scene):
    """An orphan is not known by its age then."""

    def without_a_start(request):
        answer = worked_on(scene, request)
        (state,) = answer.transaction_states
        return replace(answer, transaction_states=(replace(state, transaction_start_time=-1),))

    scene.control.answer(ApiKey.DESCRIBE_TRANSACTIONS, without_a_start, FOREVER)
    steps = tried(scene)
    found = steps.pop("open transaction")
    assert (found.state, found.code) == (StepState.WARNING, "KP0623")
    assert found.said == "its age is not known"
    assert {step.state for step in steps.values()} == {StepState.OK}


@pytest.mark.parametrize(
    ("nth", "row"), [(2, "aborted row"), (3, "committed row")], ids=["abort", "commit"]
)
def test_an_end_that_is_described_as_empty_is_a_warning(scene, nth, row):
    """As franz-go's kfake after an abort: such a batch would never be resolved by a start."""

    def empty(request):
        answer = worked_on(scene, request)
        (state,) = answer.transaction_states
        return replace(answer, transaction_states=(replace(state, transaction_state="Empty"),))

    scene.control.answer(ApiKey.DESCRIBE_TRANSACTIONS, empty, nth=nth)
    steps = tried(scene)
    found = steps.pop(row)
    assert (found.state, found.code) == (StepState.WARNING, "KP0610")
    assert "its coordinator says Empty, epoch " in found.said
    assert "kprod txn resolve" in found.change
    assert {step.state for step in steps.values()} == {StepState.OK}


def test_an_abort_that_is_described_as_a_commit_is_red(scene):
    def committed(request):
        answer = worked_on(scene, request)
        (state,) = answer.transaction_states
        changed = replace(state, transaction_state="CompleteCommit")
        return replace(answer, transaction_states=(changed,))

    scene.control.answer(ApiKey.DESCRIBE_TRANSACTIONS, committed, nth=2)
    found = tried(scene)["aborted row"]
    assert (found.state, found.code) == (StepState.FAILED, "KP0629")
    assert "that is committed, not lost" in found.said


def test_a_service_without_list_transactions_is_a_warning():
    """Commits and replays do without it; what is not found waits for its timeout."""
    scene = scene_of(
        versions={ApiKey.LIST_TRANSACTIONS: 0}, broker_configs={"cleanup.policy": "delete"}
    )
    steps = {}
    scene.perform(lambda: steps.update(tried(scene)))
    found = steps.pop("open transaction")
    assert (found.state, found.code) == (StepState.WARNING, "KP0623")
    assert found.said == "ListTransactions is not offered"
    assert "commits and replays work" in found.change
    assert "kafka.transaction.timeout.ms" in found.change
    assert {step.state for step in steps.values()} == {StepState.OK}


def test_a_service_that_lists_nothing_is_a_warning(scene):
    """As Redpanda before 23.1: commits work, and orphans are not found."""
    scene.control.answer(ApiKey.LIST_TRANSACTIONS, ErrorCode.NONE, FOREVER)
    steps = tried(scene)
    found = steps.pop("open transaction")
    assert (found.state, found.code) == (StepState.WARNING, "KP0623")
    assert "ListTransactions leaves it out" in found.said
    assert {step.state for step in steps.values()} == {StepState.OK}


def test_a_topic_that_can_not_be_deleted_is_named(scene):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.control.answer(ApiKey.DELETE_TOPICS, code, FOREVER)
    steps = tried(scene)
    (topic,) = trial_topics(scene)
    assert steps["clean-up"].change.endswith(f"--delete --topic {topic}")
    assert "DELETE on the topic" not in steps["clean-up"].said


HOUR_S = 3_600


def left_by_another(scene, hours, name="{}-0a1b2c"):
    """The topic of a trial that began so many hours ago, and was killed then, or runs now."""
    begun = time.gmtime(scene.scheduler.wall_ms() / 1000 - hours * HOUR_S)
    topic = f"{LOG_TOPIC}-check-" + name.format(time.strftime("%Y%m%dT%H%M%S", begun))
    scene.cluster.create_topic(topic, 1)
    return topic


def test_an_old_topic_of_a_killed_check_is_deleted(scene):
    """No trial runs for a day."""
    left_by_another(scene, 25)
    left_by_another(scene, 2_500)
    steps = tried(scene)
    assert (steps["earlier checks"].state, trial_topics(scene)) == (StepState.OK, [])
    assert "deleted, of checks that were killed: " in steps["earlier checks"].said


def test_a_topic_of_today_is_named_and_stays(scene):
    """Its check may be running, here or on a machine with a wrong clock."""
    young = [left_by_another(scene, hours, f"{{}}-{n:06x}") for n, hours in enumerate((23, 0, -30))]
    steps = tried(scene)
    found = steps["earlier checks"]
    assert (found.state, found.code) == (StepState.WARNING, "KP0630")
    assert all(topic in found.said for topic in young)
    assert f"kafka-topics.sh --bootstrap-server ... --delete --topic {min(young)}" in found.change
    assert sorted(trial_topics(scene)) == sorted(young)
    others = {step.state for name, step in steps.items() if name != "earlier checks"}
    assert others == {StepState.OK}


@pytest.mark.parametrize(
    "name", ["{}", "{}-0a1b2", "{}-0a1b2c-", "{}-0A1B2C", "20259999T000000-0a1b2c"]
)
def test_a_topic_of_another_name_is_not_touched(scene, name):
    other = left_by_another(scene, 2_500, name)
    steps = tried(scene)
    assert steps["earlier checks"].said == "no topic of theirs is left"
    assert trial_topics(scene) == [other]


def test_an_old_topic_that_can_not_be_deleted_is_named(scene):
    left = left_by_another(scene, 25)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.control.answer(ApiKey.DELETE_TOPICS, refused, nth=1)
    found = tried(scene)["earlier checks"]
    assert (found.state, found.code) == (StepState.WARNING, "KP0630")
    assert left in found.said
    assert found.change.endswith(f"--delete --topic {left}")


def test_whoever_closes_it_early_cleans_up(scene):
    with scene.client() as client:
        for stop in OF_TRIAL[1:-1]:
            trial = trial_steps(client, CONFIG, TIMEOUT_MS)
            while next(trial).name != stop:
                pass
            assert len(trial_topics(scene)) == 1
            trial.close()
            assert trial_topics(scene) == []
        assert client.open_transactions("kprod~~check", client.deadline()).transactions == ()
