"""The hint of an operator's plan that no longer holds works when it is followed: on a fake cluster,
in simulated time.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, RefusedError
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE
from tests.simulation.scene import VERSIONS, Scene
from tests.transactions.failing import KEY, Failing
from tests.transactions.failing_commits import the_ids_have_expired

pytestmark = VERSIONS


def test_a_batch_of_expired_ids_is_resolved_by_force(scene: Scene) -> None:
    with suppress(CommitOutcomeUnknownError):
        the_ids_have_expired(Failing(scene))
    scene.cluster.heal()
    with scene.by_hand() as operates:
        with pytest.raises(RefusedError) as raised:
            operates.plan_resolve(KEY, 0, done=True)
        assert raised.value.hint == "--force resolves it nevertheless"
        plan = operates.plan_resolve(KEY, 0, done=True, force=True)
        assert operates.resolve(plan).last_done == 0


def test_a_plan_that_another_driver_overtook_is_made_again(scene: Scene) -> None:
    failing = Failing(scene)
    failing.commit_other("other")
    with scene.by_hand() as operates:
        plan = operates.plan_reset(KEY)
        failing.commit_other("later", number=1)
        with pytest.raises(RefusedError) as raised:
            operates.reset(plan)
        assert raised.value.hint == "a driver is running: check again with 'kprod txn describe'"
        (report,) = operates.inspector.describe(KEY)
        assert report.state.last_done == 1
        operates.reset(operates.plan_reset(KEY))
        assert operates.inspector.key(KEY).state.last_done == NOTHING_DONE
