"""R05, R06, R13: the driver's EndTxn gets no answer, doubtful ones, and is asked for twice."""

from __future__ import annotations

import struct

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once.both_versions import answer_to_end_txn_is_lost
from tests.exactly_once.harness import of_data, of_log, variants
from tests.faults.proxy import Action, Side

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(240)]

#: Length, correlation id, no tagged fields, throttle time; then the error code (EndTxn v3 and on).
_ERROR_AT = 4 + 4 + 1 + 4


def answering(code: ErrorCode):
    def edit(frame: bytes) -> bytes:
        return frame[:_ERROR_AT] + struct.pack(">h", code.value) + frame[_ERROR_AT + 2 :]

    return edit


@pytest.mark.parametrize("action", variants(Action.CUT, Action.SWALLOW))
@pytest.mark.parametrize("whose", [of_data, of_log], ids=["data", "log"])
def test_r05_an_answer_to_end_txn_that_is_lost_is_found_out(world, driver, action, whose):
    answer_to_end_txn_is_lost(world, driver, "r05", action, whose)


#: What EndTxn may answer, although it was done; each is to be found out.
DOUBTFUL = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


@pytest.mark.parametrize("times", variants(3, 1))
def test_r06_any_temporary_answer_to_end_txn_leaves_one_batch(world, driver, times):
    scenario = world.scenario("r06")
    for number, code in enumerate(DOUBTFUL):
        fault = world.fault(
            ApiKey.END_TXN,
            Action.REPLACE,
            Side.RESPONSE,
            times=times,
            match=of_data,
            edit=answering(code),
        )
        answer = driver.run("batch", **scenario.batch(number, rows=50))
        assert answer["result"] == "OK", (code, answer)
        assert fault.fired >= 1, code
        world.faults.remove(fault)
    report = scenario.assert_clean()
    assert report.visible == 50 * len(DOUBTFUL)


@pytest.mark.parametrize("described", variants(False, True))
def test_r06_an_unclear_end_txn_is_an_error_with_its_ids(world, driver, described):
    """Each answer to EndTxn is a temporary error. If brokers describe the transactions, they show
    that all are committed; if they don't, the outcome stays unknown.
    """
    scenario = world.scenario(
        "r06-ever",
        kafka_request_timeout_ms="1000",
        kafka_delivery_timeout_ms="10000",
        kafka_max_block_ms="10000",
    )
    silent = []

    def hide(hit):
        if not described and not silent:
            silent.append(
                world.fault(
                    ApiKey.DESCRIBE_TRANSACTIONS, Action.SWALLOW, Side.RESPONSE, times=1_000_000
                )
            )

    fault = world.fault(
        ApiKey.END_TXN,
        Action.REPLACE,
        Side.RESPONSE,
        times=1_000_000,
        match=of_data,
        then=hide,
        edit=answering(ErrorCode.CONCURRENT_TRANSACTIONS),
    )
    answer = driver.run("batch", **scenario.batch())
    assert fault.fired >= 2  # an EndTxn is sent again only after a description
    for one in (fault, *silent):
        world.faults.remove(one)
    (batch,) = scenario.batches()
    if described:
        assert answer["result"] == "OK", answer
    else:
        assert answer["result"] == "UNKNOWN", answer
        assert len(batch.ids) == 2, answer
    scenario.assert_clean()


@pytest.mark.parametrize(
    ("steps", "visible"),
    [
        (["commit", "commit"], 400),
        (["commit", "abort"], 400),
        (["abort", "commit"], 0),
        (["abort", "abort"], 0),
    ],
    ids=["commit twice", "abort after commit", "commit after abort", "abort twice"],
)
@pytest.mark.parametrize("app", [False, True], ids=["job", "app"])
def test_r13_commit_and_abort_in_any_order_undo_nothing(
    world, driver, steps, visible, app, record_property
):
    more = {"txnAppId": "nightly", "txnVersion": "7"} if app else {}
    scenario = world.scenario("r13", **more)
    answer = driver.succeed("twice", **scenario.batch(steps=steps))
    first, second = answer["answers"]
    assert first == "OK", answer
    if steps == ["abort", "commit"]:
        assert "CommitError" in second, answer
    report = scenario.assert_clean()
    assert report.visible == visible, answer
    record_property("found", second[:60])
