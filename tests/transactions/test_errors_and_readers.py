"""A failed commit or abort names the rows that readers of committed rows see, and so does the type
of its error: now, when brokers have timed out what is open, and when the batch is written again.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from spark_kafka_sink import transactions
from spark_kafka_sink.base import errors
from spark_kafka_sink.base.errors import (
    BatchError,
    CommitError,
    CommitLogError,
    CommitOutcomeUnknownError,
    KafkaError,
    PartialCommitError,
    SupersededError,
)
from spark_kafka_sink.transactions import commit_state
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.results import Commit, Refuse, Visible
from spark_kafka_sink.transactions.steps import Goal, View
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.simulation.scene import VERSIONS, Scene
from tests.transactions.failing import KEY, MINE, Failing
from tests.transactions.failing_commits import ABORTS, WAYS, Way

#: Longer than each transaction.timeout.ms, and the brokers' scan.
_ALL_TIMED_OUT_MS = 120_000
#: Raise sites that are shown elsewhere: only a deposed leader returns an old end of the log
#: (``test_edges_log_reading.py``), only a topic that was created again ends before an earlier write
#: (``test_keys_left_open.py``), only planning refuses an old version
#: (``test_edges_attempts.py``), and an operator's change has no rows (``test_operations.py``).
_ELSEWHERE = (
    "the commit log of '...' was read from a broker that is no leader",
    "the commit log ... ends before what '...' has written to it",
    "version ... of '...' is older than each version that the commit log remembers",
    "the commit log's state of '...' has changed meanwhile",
    "... more transactions of the batch ...",
    "the ... of run ... of '...' has no transactional id: brokers show ... ids as used",
    "a commit of batch ... of '...' may have begun before its abort",
    "the decision to commit batch ... of '...' is recorded, so the batch was not aborted",
)

SIMULATED = VERSIONS


def mine(scene: Scene) -> list[str]:
    """Rows of the write that failed, as readers of committed rows see them."""
    return [value for value in scene.values() if value.startswith("mine")]


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[Refuse]:
    """The ends of all goals that failed, in their order."""
    ends: list[Refuse] = []
    view_of = Committer.view_of

    def noted(self: Committer, goal: Goal) -> View:
        view = view_of(self, goal)
        if view.refused is not None:
            ends.append(view.refused)
        return view

    monkeypatch.setattr(Committer, "view_of", noted)
    return ends


def told(way: Way, failing: Failing) -> KafkaError:
    with pytest.raises(KafkaError) as raised:
        way.go(failing)
    failing.control.check()
    error = raised.value
    text = ".*".join(re.escape(piece) for piece in way.text.split("..."))
    assert isinstance(error, way.error), repr(error)
    assert re.search(text, error.message), error.message
    return error


def visible(error: KafkaError) -> Visible:
    """As the table of docs/api/exceptions.md has it."""
    if isinstance(error, PartialCommitError):
        return Visible.SOME
    return Visible.UNKNOWN if isinstance(error, CommitOutcomeUnknownError) else Visible.NONE


def agrees(said: Visible, now: list[str], later: list[str], next_error: KafkaError | None) -> bool:
    """``next_error`` is that of the next start."""
    whole = sorted(MINE)
    if said is Visible.SOME:
        return now == later and 0 < len(later) < len(whole)
    if said is Visible.UNKNOWN:
        return later in ([], whole) or isinstance(next_error, PartialCommitError)
    assert said is Visible.NONE
    return now == later == []


def start_again(scene: Scene) -> KafkaError | None:
    """The brokers answer again, and a driver plans as each start does; then time passes. Returns
    the error of that start.
    """
    found: KafkaError | None = None
    scene.cluster.heal()
    with scene.driver() as driver:
        try:
            driver.plan(KEY)
        except (CommitOutcomeUnknownError, PartialCommitError, CommitLogError) as error:
            found = error
    scene.scheduler.sleep(_ALL_TIMED_OUT_MS)
    return found


@SIMULATED
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_failed_commit_agrees_with_readers(scene: Scene, way: Way, failed: list[Refuse]) -> None:
    failing = Failing(scene)
    error = told(way, failing)
    said = failed[-1].visible
    assert said is visible(error)
    now = mine(scene)
    next_error = start_again(scene)
    later = mine(scene)
    assert agrees(said, now, later, next_error), (error, now, later, next_error)


@SIMULATED
@pytest.mark.parametrize(
    "way", [way for way in WAYS if way.error is CommitError], ids=lambda way: way.name
)
def test_a_batch_may_be_written_again_after_a_commit_error(scene: Scene, way: Way) -> None:
    """Its rows come once, or it is refused again; never twice."""
    failing = Failing(scene)
    told(way, failing)
    scene.cluster.heal()
    with scene.driver() as driver:
        number = 5 if "number" in way.text else 0
        try:
            again = failing.batch(*MINE, number=number, run="run-9")
            driver.commit(failing.owner("run-9", driver), again)
        except (CommitError, PartialCommitError):  # (the batch before is to be resolved first)
            wanted: list[str] = []
        else:
            wanted = sorted(MINE)
    scene.scheduler.sleep(_ALL_TIMED_OUT_MS)
    assert mine(scene) in (wanted, [])


@SIMULATED
@pytest.mark.parametrize("way", ABORTS, ids=lambda way: way.name)
def test_an_abort_that_fails_leaves_nothing_visible(
    scene: Scene, way: Way, failed: list[Refuse]
) -> None:
    """It was not decided, and no error of an abort is a CommitError."""
    error = told(way, Failing(scene))
    assert not isinstance(error, CommitError)
    assert failed[-1].how is not Commit.NOT_VISIBLE
    assert mine(scene) == []
    start_again(scene)
    assert mine(scene) == []
    assert scene.state_of(log_id(KEY)) != "Ongoing"


def test_no_outcome_is_a_subclass_of_another_one() -> None:
    """Or ``except CommitError`` would write a batch again that is visible."""
    kinds = (
        CommitError, CommitLogError, CommitOutcomeUnknownError, PartialCommitError, SupersededError
    )  # fmt: skip
    for one in kinds:
        assert [other for other in kinds if issubclass(one, other)] == [one]
        assert issubclass(one, BatchError)


def test_every_error_of_the_commit_is_walked() -> None:
    """Each place that raises a BatchError has a way in ``failing_commits.py``."""
    folder = Path(transactions.__file__).parent
    sites = [site for path in folder.rglob("*.py") for site in raised_in(path) if site != "..."]
    assert len(sites) > 30
    walked = (*(way.text for way in (*WAYS, *ABORTS) if way.text), *_ELSEWHERE)
    missing = [site for site in sites if not any(fits(site, text) for text in walked)]
    assert missing == []


def raised_in(path: Path) -> list[str]:
    """The messages of all BatchErrors that are made in that file, with "..." for what differs."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and any(map(is_batch_error, names(node.func))) and node.args:
            found.append("".join(pieces(node.args[0])))
    return found


def names(node: ast.expr) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def is_batch_error(name: str) -> bool:
    if name == "_Text":  # of result_errors.py; its type depends on the end
        return True
    found = getattr(errors, name, None) or getattr(commit_state, name, None)
    return isinstance(found, type) and issubclass(found, BatchError)


def pieces(node: ast.expr) -> list[str]:
    if isinstance(node, ast.JoinedStr):
        return [str(one.value) if isinstance(one, ast.Constant) else "..." for one in node.values]
    return [str(node.value)] if isinstance(node, ast.Constant) else ["..."]


def fits(site: str, text: str) -> bool:
    """Whether ``text`` can be of a message of ``site``: they have the same beginning or piece."""
    wanted = re.escape(text.removesuffix("...")).replace(r"\.\.\.", ".*?")
    return re.search(wanted, re.sub(r"(\.\.\.)+", "...", site)) is not None
