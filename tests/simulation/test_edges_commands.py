"""An operator's command says only what is true, and stays true."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import CommitError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.transactional_ids import parse
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_world import PREFIX

pytestmark = VERSIONS


def opens_a_key(request: Request) -> bool:
    is_init = request.api == ApiKey.INIT_PRODUCER_ID
    return is_init and request.body.transactional_id.endswith("~~log")


def begin_orphan(scene: Scene) -> tuple[str, str, str]:
    """An open transaction of an attempt that the job does not count: its id, and its key and run.
    The only job of the scene is running.
    """
    (used,) = {i.rpartition("~")[0] for i in scene.data_ids()}
    orphan = f"{used}~9"
    scene.begin_foreign(orphan)
    found = parse(orphan)
    assert found is not None
    return orphan, found.key, found.run


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_job_that_can_not_commit_any_more_does_not(scene: Scene, is_reset: bool) -> None:
    """A job without txnAppId is about to commit. An operator ends an orphan of the job, and is told
    that the job's run can't commit any more. A reset lifts that: its question says so.
    """
    scene.tells_query = False
    run = scene.run("driver")

    def ends_an_orphan() -> None:
        orphan, key, of_job = begin_orphan(scene)
        with scene.by_hand() as operator:
            aborted = operator.end(operator.plan_abort([orphan]))
            assert (aborted.ended, aborted.runs) == ((orphan,), (of_job,))
            if is_reset:
                operator.reset(operator.plan_reset(key))
                assert operator.inspector.keys(PREFIX) == {}

    met = scene.before_send(run, opens_a_key, ends_an_orphan)
    if is_reset:
        scene.job(run, scene.options(), 0)
    else:
        with pytest.raises(CommitError, match="was aborted, and commits nothing any more"):
            scene.job(run, scene.options(), 0)
    assert met
    with scene.by_hand() as operator:
        assert operator.inspector.keys(PREFIX) == {}, "the job removes its key"
    assert scene.open_ids() == []
    scene.ends_with(*[0] * is_reset)
