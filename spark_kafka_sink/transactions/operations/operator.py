"""The changes that an operator can make:

* *commit*: commits all transactions of the decided batch of a key. If brokers have aborted some of
  them, and none is committed, it aborts the others. A start of the query or the job does the same,
  but it also aborts all of them if none is committed, and some are near their timeout.
* *abort*: aborts transactions that the operator names.
* *sweep*: aborts orphans, which are open transactions of runs that do not own their key.
* *resolve*: ends a batch that is committed only in part.
* *reset*: replaces the state of a key by an empty state.

Each of these changes has two steps:

1. A method ``plan_...`` of :class:`Operator` only reads. It returns a plan of the change, or raises
   RefusedError with the reason.
2. The change itself fences the drivers, reads the state again, and then makes the change. It reads
   again because a driver may have changed the state since the plan.

The package ``cli/txn`` asks for a confirmation between the two steps. Writes of the sink don't use
this module.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import (
    AuthorizationError,
    CommitLogError,
    ConfigError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    RefusedError,
    named,
    safe_text,
)
from spark_kafka_sink.base.topic_name import INTERNAL_TOPICS
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Phase, Standing
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.ending import ENDING, described_when_ended
from spark_kafka_sink.transactions.operations.blockers import open_producers
from spark_kafka_sink.transactions.operations.inspection import (
    Inspector,
    KeyReport,
    OpenTransaction,
)
from spark_kafka_sink.transactions.outcomes import Outcome, outcome_of
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.results import Changed, Commit, Refuse
from spark_kafka_sink.transactions.steps import EndByHand, Forget, Reset, Resolve, RollForward
from spark_kafka_sink.transactions.table import DECIDED, OWNED, aborted_by_hand, kept_by_hand
from spark_kafka_sink.transactions.transactional_ids import (
    TransactionalId,
    is_once,
    parse,
    prefix_of_key,
)

_YOUNG: Final = "not open for that long"
_MEANWHILE: Final = "it was ended meanwhile"
#: The maximum number of transactions that an error lists.
_NAMED: Final = 5
_LEFT_OPEN: Final = {
    ErrorCode.LEADER_NOT_AVAILABLE: "a partition of it has no leader, and brokers would drop the "
    "marker there: try again when it has one"
}
#: A plan only reads, and only a write shows that a state is the newest.
_MAY_BE_OLD: Final = (
    "if an error says that this batch is PARTIAL, run the command again when all brokers are up: a "
    "broker that is cut off may return an old state"
)
_LOST_MARKERS: Final = (
    "brokers write no marker to a partition that has no leader when its transaction is committed: "
    "see which brokers are down; then 'kprod txn blockers TOPIC' shows the transactions that hang"
)


def task_ids(ids: Sequence[str]) -> list[TransactionalId]:
    """Parses the transactional ids of tasks. Raises ConfigError for an id that no task of this
    package can have.
    """
    found = []
    for one in ids:
        data_id = parse(one)
        if data_id is None:
            raise ConfigError(
                f"'{safe_text(one, 400)}' is not the transactional id of a task",
                hint="'kprod txn list PREFIX' shows them; 'kprod txn fence' ends another client's",
            )
        found.append(data_id)
    return found


@dataclass(frozen=True, slots=True)
class EndPlan:
    """A plan to abort ``transactions``. Before the abort, the drivers are fenced, and the
    transactions are checked again.

    * ``kept``: the ids of the transactions that are not aborted, each with the reason.
    * ``even_decided``: the ids of transactions that are aborted although the commit log has the
      decision to commit them.
    * ``even_owners``: if True, the transactions of a run that owns its key in the commit log are
      also aborted.
    * ``silent``: the brokers that did not respond. Their open transactions are unknown.
    """

    transactions: tuple[OpenTransaction, ...]
    kept: Mapping[str, str] = field(default_factory=dict)
    even_decided: frozenset[str] = frozenset()
    even_owners: bool = False
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aborted:
    """The result of an abort.

    * ``ended``: the ids of the transactions that were aborted.
    * ``kept``: the ids of the transactions that were not aborted, each with the reason.
    * ``failed``: the ids of the transactions that may still be open, each with the error.
    * ``runs``: the runs of the transactions that were to be aborted. They can't commit any more.
    """

    ended: tuple[str, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resolution:
    """A plan to end the decided batch in ``report``. As a rule, some transactions of the batch are
    committed, and others were aborted.

    If ``done`` is True, the batch counts as committed after the change, and the rows of the aborted
    transactions stay missing. If ``done`` is False, the query or the job must write the whole batch
    again, and rows that are already visible come twice.
    """

    report: KeyReport
    done: bool

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The transactional ids of the batch's open transactions, which the plan will end."""
        return tuple(
            t.transaction.transactional_id for t in self.report.with_outcome(Outcome.RETRY)
        )


class Committed(NamedTuple):
    """The result of an operator's commit. ``state`` is the state of the key after it. ``committed``
    is True if the batch is committed, and False if all its transactions are aborted.
    """

    state: CommitState
    committed: bool


class Operator:
    """Ends transactions and changes commit-log states in one cluster, for an operator. max.block.ms
    limits each step of a change.
    """

    def __init__(self, log: CommitLog, client: TransactionClient) -> None:
        self.inspector = Inspector(log, client)
        self._committer = Committer(log, client)
        self._log = log
        self._client = client

    # -- commit -------------------------------------------------------------------------------

    def plan_commit(self, key: str) -> KeyReport:
        """Returns the report of ``key``, with the transactions that :meth:`commit` would commit.
        The report has no transactions if the commit log has no decision to commit a batch of this
        key.

        Raises RefusedError if the key does not exist, or if its batch is committed only in part
        (PARTIAL).
        """
        report = self.inspector.key(key)
        if report.state.phase is Phase.PARTIAL:
            assert report.state.decision is not None
            raise RefusedError(
                f"batch {report.state.decision.number} of '{key}' is committed in part: the broker "
                f"aborted {len(report.state.lost)} of its {len(report.transactions)} transactions, "
                "and no commit brings their rows back",
                hint=f"'kprod txn resolve {key} --batch {report.state.decision.number} --as done' "
                "continues without them, '--as replay' has the whole batch written again",
            )
        return report

    def commit(self, report: KeyReport) -> Committed:
        """Commits every transaction of the decided batch in ``report``, and checks that the rows of
        the batch are visible.

        Exception: if brokers have aborted some of the transactions, and none is committed, the
        other transactions are aborted. The result shows whether the batch is committed.

        Raises one of these errors:

        * PartialCommitError: this call has found that only a part of the batch is committed.
        * CommitOutcomeUnknownError: some outcomes are unknown.
        * RefusedError: another driver or command has ended the batch, and its transactions are
          neither all committed nor all aborted.
        * KafkaTimeoutError: the batch is committed, but some commit markers are still missing after
          max.block.ms.
        """
        # The batch's driver or another command may have ended the batch since ``report``. So the
        # result comes from the coordinators of the transactions, and not only from the log.
        state = self._committer.roll_forward(report.key, only_lost=True)
        decision = report.state.decision
        if decision is None:
            return Committed(state, committed=True)
        outcomes = self._outcomes(report.key, decision)
        if Outcome.RETRY in outcomes:
            # Some are open, and the log does not have the decision. A deposed leader may have
            # returned this state, so the log's leader must confirm it.
            state = self._confirmed(report.key, decision)
            outcomes = self._outcomes(report.key, decision)
        if set(outcomes) == {Outcome.COMMITTED}:
            self._check_visible(report, decision)
        elif state.has_done(decision):
            pass  # with version 1, the outcomes may be those of later transactions
        elif set(outcomes) == {Outcome.LOST}:
            return Committed(state, committed=False)
        else:
            found = ", ".join(f"{count} {how.value}" for how, count in outcomes.items())
            raise RefusedError(
                f"batch {decision.number} of '{report.key}' was ended meanwhile, by its driver or "
                f"another command; of its {len(decision.ids)} transactions: {found}",
                hint="check its topic before anything is written again",
            )
        return Committed(state, committed=True)

    def _confirmed(self, key: str, decision: Decision) -> CommitState:
        """Ends the decided batch of ``key``, if there is one. Returns the state of the key after
        that, which shows the batch of ``decision`` as done.

        Exception: if the state does not show this batch as done, the leader of the log's partition
        must confirm that the state is the newest. Then this state is the result.
        """
        # The leader confirms the state by accepting a write. The refusal leads to this write.

        def refusal(state: CommitState) -> Refuse | None:
            is_there = state.has_done(decision)
            return None if is_there else Refuse(Commit.NOT_VISIBLE, Changed(is_tried=False))

        view = self._committer.view_of(RollForward(key, refusal, only_lost=True))
        if view.refused is None or isinstance(view.refused.reason, Changed):
            return view.state
        raise error_of(key, view.refused)

    def _outcomes(self, key: str, decision: Decision) -> Mapping[Outcome, int]:
        """Waits until the coordinators have written all markers of the decided batch's
        transactions. Then counts these transactions by outcome. Raises KafkaTimeoutError if markers
        are missing after max.block.ms.
        """
        wait_ms = self._client.config.max_block_ms
        deadline = self._client.deadline(2 * wait_ms)  # (time for a last look)
        found = described_when_ended(self._client, decision.ids, deadline, wait_ms)
        left = [one for one, description in found.items() if description.state in ENDING]
        if left:
            raise KafkaTimeoutError(
                f"batch {decision.number} of '{key}' is committed, and {len(left)} of its "
                f"{len(found)} transactions have no markers yet ({named(left, _NAMED)}): their "
                "rows are not visible",
                hint="see which brokers are down; 'kprod txn blockers TOPIC' shows the "
                "transactions until their markers are written",
            )
        return Counter(outcome_of(t, found[t.transactional_id]) for t in decision.transactions)

    def _check_visible(self, report: KeyReport, decision: Decision) -> None:
        """Waits until all partitions that the batch may have written to have its commit markers, so
        that its rows are visible. Raises KafkaTimeoutError after max.block.ms. Skips topics that
        the principal may not READ.
        """
        # The state CompleteCommit is not enough: a coordinator reports it even if it has dropped
        # the marker of a partition, because the partition had no leader.
        client = self._client
        written: dict[TopicPartition, set[PreparedTransaction]] = defaultdict(set)
        for one in report.transactions:
            for topic, partitions in one.found.partitions:
                for partition in () if topic in INTERNAL_TOPICS else partitions:
                    written[TopicPartition(topic, partition)].add(one.transaction)
        # If a transaction is complete, its coordinator has forgotten the transaction's partitions.
        complete = {one.transaction for one in report.transactions if not one.found.partitions}
        of_rows = {one.topic for one in decision.payloads} if complete else set()
        every = bool(complete) and not (of_rows and all(of_rows))
        there = self._partitions(None if every else of_rows | {tp.topic for tp in written})
        for tp in there:
            if every or tp.topic in of_rows:
                written[tp] |= complete
        deadline, attempts = client.deadline(), 0
        what = f"batch {decision.number} of '{report.key}' is committed, and"
        left: Collection[TopicPartition] = written.keys() & there  # a topic may be deleted
        while True:
            try:
                open_ = self._open_producers(left)
                # (With version 1, an open transaction with this producer id and epoch may be the
                # worker's next transaction.)
                found = client.describe(decision.ids, client.deadline()) if open_ else {}
            except KafkaTimeoutError as error:
                raise KafkaTimeoutError(
                    f"{what} whether its rows are visible is not known: {error.message}",
                    hint=_LOST_MARKERS,
                ) from error
            left = [
                tp
                for tp, identities in open_.items()
                if any(
                    (t.producer_id, t.producer_epoch) in identities
                    and outcome_of(t, found[t.transactional_id]) is Outcome.COMMITTED
                    for t in written[tp]
                )
            ]
            if not left:
                return
            if client.clock.now_ms() >= deadline:
                names = named([str(tp) for tp in left], _NAMED)
                raise KafkaTimeoutError(
                    f"{what} its rows in {len(left)} partitions ({names}) are not visible: brokers "
                    "have written no markers there",
                    hint=_LOST_MARKERS,
                )
            client.loop.pause(attempts, deadline)
            attempts += 1

    def _partitions(self, topics: Collection[str] | None) -> set[TopicPartition]:
        """Requests the partitions of ``topics``, or of all topics if ``topics`` is None. Kafka's
        internal topics, and topics that the principal may not DESCRIBE, are left out.
        """
        client = self._client
        names = client.topic_names(client.deadline()) if topics is None else topics
        request = MetadataRequest(tuple(names), allow_auto_topic_creation=False)
        call = Call(request, AnyBroker(), "Metadata")
        answer = client.loop.send_and_receive(call, client.deadline())
        found = (topic for topic in answer.topics if topic.name not in INTERNAL_TOPICS)
        return {one.tp for topic in found for one in topic.partitions}

    def _open_producers(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, Collection[tuple[int, int]]]:
        """Requests the producers that have an open transaction in ``partitions``. Returns, for each
        partition, pairs of producer id and epoch. Topics that the principal may not READ are left
        out.
        """
        found: dict[TopicPartition, Collection[tuple[int, int]]] = {}
        for topic in dict.fromkeys(tp.topic for tp in partitions):
            of_topic = [tp for tp in partitions if tp.topic == topic]
            with suppress(AuthorizationError):
                open_ = open_producers(self._client, of_topic, self._client.deadline())
                for tp, producers in open_.items():
                    found[tp] = {(p.producer_id, p.producer_epoch) for p in producers}
        return found

    # -- abort, sweep -------------------------------------------------------------------------

    def plan_abort(self, ids: Sequence[str], *, force: bool = False) -> EndPlan:
        """Plans to abort exactly the transactions whose ids are in ``ids``.

        Raises ConfigError for an id that no task of this package can have. Raises RefusedError in
        each of these cases:

        * A transaction is not open.
        * The commit log's topic is missing.
        * ``force`` is False, and the commit log has the decision to commit one of the transactions.
        * ``force`` is False, and one of the transactions belongs to a run that owns its key in the
          commit log. The query of this run may be running.
        """
        states: dict[str, CommitState] = {}
        for prefix in dict.fromkeys(one.prefix for one in task_ids(ids)):
            states.update(self.inspector.keys(prefix))
        found = self.inspector.described(list(dict.fromkeys(ids)), states, all_=True)
        for t in found:
            if t.found.state is not TransactionState.ONGOING:
                now = t.found.state.value if t.found.error is ErrorCode.NONE else t.found.error.name
                raise RefusedError(
                    f"the transaction '{t.id}' is not open (its coordinator says {now}); none was "
                    "aborted",
                    hint="leave it out",
                )
        return self._abort_plan(found, force=force)

    def plan_abort_run(self, prefix: str, run: str, *, force: bool = False) -> EndPlan:
        """Plans to abort every open transaction of the run ``run``. Raises RefusedError in each of
        these cases:

        * The commit log's topic is missing.
        * ``force`` is False, and the commit log has the decision to commit one of the transactions.
        * ``force`` is False, and the run owns the key of one of the transactions.
        """
        overview = self.inspector.overview(prefix)
        overview.known_keys()  # without a log no decision is known
        found = (t for t in overview.open if t.id.run == run)
        return replace(self._abort_plan(_ongoing(found), force=force), silent=overview.silent)

    @staticmethod
    def _abort_plan(found: tuple[OpenTransaction, ...], *, force: bool) -> EndPlan:
        for t in found:
            if t.decided is not None and not force:
                raise RefusedError(
                    f"batch {t.decided.number} of '{t.decided.key}' is decided, and '{t.id}' "
                    "belongs to it; none was aborted",
                    hint=f"'kprod txn commit {t.decided.key}' ends it as decided. With --force it "
                    "is aborted: the batch is PARTIAL if anything of it is committed, or its "
                    "driver runs and commits the rest; otherwise the next start writes it again",
                )
        owned = next((t for t in found if t.standing is Standing.OWNER), None)
        if owned is not None and not force:
            raise _is_owned(owned.id.run, owned.id.key)
        decided = frozenset(str(t.id) for t in found if t.decided is not None)
        return EndPlan(found, even_decided=decided, even_owners=force)

    def plan_sweep(
        self,
        prefix: str,
        *,
        run: str | None = None,
        older_than_ms: int | None = None,
        force: bool = False,
    ) -> EndPlan:
        """Plans to abort the orphans of ``prefix``. A transaction is an orphan if it is open, its
        run does not own its key, and the commit log has no decision to commit it.

        * ``run``: if given, the plan has only transactions of this run.
        * ``older_than_ms``: if given, the plan has only transactions that are older than this
          limit. The limit protects a run that has not committed yet: it does not own its key before
          its first commit, so its transactions look like orphans. Brokers of Kafka 3.8 or later
          measure the age with their own clocks. For older brokers, the age is computed with the
          clock of this machine.
        * ``force``: if True, open transactions of a run that owns its key are also in the plan.

        Raises RefusedError if the commit log's topic is missing. If ``force`` is False, also raises
        RefusedError if ``run`` owns a key.
        """
        overview = self.inspector.overview(prefix)
        states = overview.known_keys()
        owned = [key for key, state in states.items() if state.standing(str(run)) is Standing.OWNER]
        if run is not None and not force and owned:
            raise _is_owned(run, owned[0])
        found = overview.open
        old = None if older_than_ms is None else self._older(older_than_ms, found)
        kept: dict[str, str] = {}
        swept = []
        for t in _ongoing(found):
            if run is not None and t.id.run != run:
                continue
            if t.decided is not None:
                kept[str(t.id)] = DECIDED
            elif t.standing is Standing.OWNER and not force:
                kept[str(t.id)] = OWNED
            elif old is not None and str(t.id) not in old:
                kept[str(t.id)] = _YOUNG
            else:
                swept.append(t)
        return EndPlan(tuple(swept), kept, even_owners=force, silent=overview.silent)

    def _older(self, age_ms: int, found: Sequence[OpenTransaction]) -> Collection[str]:
        ids = [str(t.id) for t in found]
        old = self._client.older_than(ids, age_ms, self._client.deadline()) if ids else frozenset()
        if old is not None:
            return old
        return {str(t.id) for t in found if t.age_ms is not None and t.age_ms > age_ms}

    def end(self, plan: EndPlan) -> Aborted:
        """Aborts the planned transactions, key by key. If a run may still commit some of them, the
        writers of the key are fenced first, and the run is recorded as aborted. Transactions that
        have changed since the plan are left alone. Raises one of these errors:

        * KafkaTimeoutError: a broker does not respond in time.
        * AuthorizationError: a right is missing.
        * SupersededError: other processes keep fencing this process from the key.

        Exception: if the plan has transactions of several keys, no error is raised. The field
        ``failed`` of the result then has the error of a key for each transaction of this key.
        """
        ended: list[str] = []
        kept: dict[str, str] = {}
        failed: dict[str, str] = {}
        runs: dict[str, None] = {}
        goals = [
            self._end_goal(plan, key) for key in dict.fromkeys(t.id.key for t in plan.transactions)
        ]
        for goal in goals:
            # A driver may be running. Without the fencing:
            # 1. The plan reads that no decision names transaction T.
            # 2. The driver has prepared all transactions, and writes a decision that names T.
            # 3. This command aborts T. So only a part of the batch is committed.
            # With the fencing, the state is read after all writes of the driver, so it shows its
            # decision. Otherwise the record of the aborted run keeps the run from deciding later:
            # the driver's commit fails, and no row of its batch is visible.
            try:
                view = self._committer.perform(goal)
            except KafkaError as error:
                if len(goals) == 1:
                    raise
                failed |= {t.transactional_id: error.message for t in goal.transactions}
                continue
            assert view.by_hand is not None
            ended += view.by_hand.aborted
            kept |= kept_by_hand(goal, view.state)
            kept |= dict.fromkeys(view.by_hand.meanwhile, _MEANWHILE)
            failed |= {one: _answer(code) for one, code in view.by_hand.failed}
            left = (parse(t.transactional_id) for t in aborted_by_hand(goal, view.state))
            runs |= dict.fromkeys(one.run for one in left if one is not None)
        return Aborted(tuple(ended), kept, failed, tuple(runs))

    @staticmethod
    def _end_goal(plan: EndPlan, key: str) -> EndByHand:
        found = [t for t in plan.transactions if t.id.key == key]
        # A superseded run can't decide any more: another run has taken over its key, or it was
        # aborted. So its transactions are aborted without fencing its driver.
        # (A run of a job without txnAppId may always decide: a reset of the job's key removes the
        # record that the run is superseded.)
        may_decide = any(
            t.standing is not Standing.SUPERSEDED or is_once(key, t.id.run) for t in found
        )
        return EndByHand(
            key,
            tuple(t.found for t in found),
            plan.even_decided,
            plan.even_owners,
            may_decide,
        )

    # -- resolve ------------------------------------------------------------------------------

    def plan_resolve(self, key: str, number: int, *, done: bool, force: bool = False) -> Resolution:
        """Plans to end batch ``number`` of ``key``, which is committed only in part (PARTIAL). If
        ``done`` is True, the batch is to count as done. If ``done`` is False, it is to be written
        again (:class:`Resolution`).

        With ``force``, the batch may also be DECIDED, provided that the outcome of one of its
        transactions is unknown. For example, the transactional id may have expired.

        Raises RefusedError if no batch of ``key`` is decided, if another number is decided, or if
        the batch is in none of these two states.
        """
        report = self.inspector.key(key)
        decision = report.state.decision
        if decision is None:
            raise RefusedError(
                f"'{key}' has nothing to resolve: {_last_done(report.state)} and no batch is in "
                "progress, as the commit log was read",
                hint=_MAY_BE_OLD,
            )
        if decision.number != number:
            raise RefusedError(
                f"'{key}' has batch {decision.number} in progress "
                f"({report.state.phase.value.upper()}), not {number}, as the commit log was read",
                hint=f"is --batch right? {_MAY_BE_OLD}",
            )
        doubtful = report.with_outcome(Outcome.UNKNOWN)
        if report.state.phase is Phase.DECIDED and not (doubtful and force):
            raise RefusedError(
                f"batch {number} of '{key}' is DECIDED, not PARTIAL"
                + (
                    f", and the outcome of {len(doubtful)} transactions is not known"
                    * bool(doubtful)
                ),
                hint="--force resolves it nevertheless"
                if doubtful
                else f"'kprod txn commit {key}' commits it, or finds that it is PARTIAL",
            )
        return Resolution(report, done)

    def resolve(self, plan: Resolution) -> CommitState:
        """Fences the drivers, and ends the batch of ``plan``. The open transactions of the batch
        are committed if ``plan.done`` is True, and aborted if ``plan.done`` is False. Returns the
        new state of the key.

        Raises RefusedError in each of these cases:

        * The state has changed since the plan.
        * A transaction can't be ended.
        * ``plan.done`` is True, and a transaction was aborted since the plan.
        * ``plan.done`` is False, and a transaction was committed since the plan.
        """
        report = plan.report
        goal = Resolve(report.key, report.state, frozenset(_contrary(report, plan.done)), plan.done)
        return self._committer.perform(goal).state

    # -- reset --------------------------------------------------------------------------------

    def plan_reset(self, key: str, *, force: bool = False) -> KeyReport:
        """Plans to replace the state of ``key`` by an empty state. Returns the report of the key.

        Raises RefusedError if the commit log does not have this key. If ``force`` is False, also
        raises RefusedError in each of these cases:

        * A batch of the key is DECIDED or PARTIAL. It must be ended first.
        * A transaction of the run that owns the key is open.
        * A broker does not respond, so open transactions may be unknown.
        """
        report = self.inspector.key(key)
        if force:
            return report
        state = report.state
        if state.decision is not None:
            raise RefusedError(
                f"batch {state.decision.number} of '{key}' is {state.phase.value.upper()}: without "
                "the log its transactions would never be ended",
                hint=f"first 'kprod txn {'commit' if state.phase is Phase.DECIDED else 'resolve'} "
                f"{key}'; or --force",
            )
        overview = self.inspector.overview(prefix_of_key(key))
        own = [t for t in overview.open if t.id.key == key and t.standing is Standing.OWNER]
        if own:
            raise RefusedError(
                f"{len(own)} transactions of the owner of '{key}', run {state.run_id}, are open "
                f"(first: {own[0].id}): its query seems to be running",
                hint=f"stop it first ('kprod txn sweep {prefix_of_key(key)} --force' ends the "
                "transactions that it leaves open), or use --force",
            )
        if overview.silent:
            raise RefusedError(
                f"{', '.join(overview.silent)} did not answer: whether transactions of the owner "
                f"of '{key}' are open is not known",
                hint="try again when they answer, or use --force",
            )
        return report

    def reset(self, report: KeyReport) -> None:
        """Fences the drivers, and replaces the state of the key by an empty state. Exception: the
        key of a job without txnAppId is removed, because such a job is never repeated. Raises
        RefusedError if the state has changed since ``report``.
        """
        self._committer.perform(Reset(report.key, report.state))

    def damage(self, key: str) -> CommitLogError | None:
        """Returns the reason why the records of ``key`` can't be decoded. Returns None if they can
        be decoded, or if there are none.

        Raises NewerStateError if a newer version of this package has written the state. Such a
        state is not damaged.
        """
        return self._log.damage(key, self._client.deadline())

    def forget(self, key: str) -> None:
        """Fences the writers of ``key``, and removes its records without decoding them. Use it only
        if the records can't be decoded (:meth:`damage`).

        Whether the last batch of the key is committed stays unknown.
        """
        self._committer.perform(Forget(key))


def _is_owned(run: str, key: str) -> RefusedError:
    return RefusedError(
        f"run {run} owns '{key}' in the commit log: its query may be running, and ends its "
        "transactions itself; none was aborted",
        hint="if it is not running: the next start of a stream ends them. If it is never started "
        "again, --force aborts them",
    )


def _ongoing(found: Iterable[OpenTransaction]) -> tuple[OpenTransaction, ...]:
    """The transactions of ``found`` whose state is Ongoing. Transactions in other states are
    already being ended by their coordinators.
    """
    return tuple(t for t in found if t.found.state is TransactionState.ONGOING)


def _answer(code: ErrorCode | None) -> str:
    return "no clear answer in time" if code is None else _LEFT_OPEN.get(code, code.name)


def _contrary(report: KeyReport, done: bool) -> Sequence[str]:
    """Returns the ids of the transactions in ``report`` that can't end as the operator wants. If
    ``done`` is True, these are the transactions that are aborted, or whose outcome is unknown. If
    ``done`` is False, these are the committed transactions.
    """
    outcomes = (Outcome.LOST, Outcome.UNKNOWN) if done else (Outcome.COMMITTED,)
    return [t.transaction.transactional_id for t in report.with_outcome(*outcomes)]


def _last_done(state: CommitState) -> str:
    return f"batch {state.last_done} is done" if state.last_done >= 0 else "nothing is done yet"
