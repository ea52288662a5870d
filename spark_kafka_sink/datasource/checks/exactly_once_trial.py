"""Tries the operations that exactly-once needs on the real service, for ``kprod check
--exactly-once``.

Some services with Kafka's protocol have no transactions or no compaction, or do not list open
transactions. The trial runs three transactions with one transactional id of its own, in a topic of
its own, and checks each result::

    1  write a row               not visible; ListTransactions lists the open transaction
       abort                     not visible; the coordinator reports the abort
    2  write a row, commit       visible; the coordinator reports the commit
    3  write a row,
       initialize the id again,
       commit                    not visible; the coordinator refuses the commit

At the end the topic is deleted, even if the trial fails or is interrupted. If the process is
killed, the topic stays. Later trials show it in a warning, and delete it after a day.
``transaction_steps.py`` checks the rights of the user's write.
"""

from __future__ import annotations

import calendar
import logging
import re
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call, Leader
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthorizationError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
    named,
    warn,
)
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import (
    Step,
    StepState,
    ok,
    red,
    skipped,
    step_of,
    yellow,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import (
    FetchedPartition,
    describe_producers,
    described,
    fetch,
)
from spark_kafka_sink.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.records.log_records import ControlType, read_batches
from spark_kafka_sink.transactions.driver_transactions import TopicRecord, prepare
from spark_kafka_sink.transactions.outcomes import Outcome, is_committed, outcome_of
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX, SEPARATOR, check_id

_log = logging.getLogger(__name__)

_EARLIER, _TOPIC, _OPEN, _LISTED, _ABORTED, _COMMITTED, _FENCED, _CLEAN = (
    *("earlier checks", "trial topic", "transaction", "open transaction", "aborted row"),
    *("committed row", "fencing", "clean-up"),
)
#: The steps of this module, in order.
OF_TRIAL: Final = (_EARLIER, _TOPIC, _OPEN, _LISTED, _ABORTED, _COMMITTED, _FENCED, _CLEAN)
_KEY: Final = b"trial"
_MOST_NAMED: Final = 5
_POLICY: Final = "cleanup.policy"
#: How long the clean-up may take, in ms, also of a trial that was interrupted.
_CLEAN_MS: Final = 10_000
#: The longest duration of a trial in ms, whatever --timeout is. The topic of another trial is taken
#: for the topic of a killed trial at an age of _DEAD_S seconds, by this machine's clock. That is
#: much longer than a trial, because another machine's clock may be wrong by a time zone.
_LONGEST_MS: Final = 30 * 60_000
_DEAD_S: Final = 24 * 3_600
_BEGUN: Final = "%Y%m%dT%H%M%S"
_NAME: Final = re.compile(r"(\d{8}T\d{6})-[0-9a-f]{6}", re.ASCII)
#: Why a red row means that exactly-once does not work.
_NOT_HERE: Final = "use deliveryGuarantee=at-least-once here, or turn to the service's operator"


def trial_steps(
    client: TransactionClient, config: SinkConfig, timeout_ms: int
) -> Generator[Step, None, None]:
    """Yields the results of a trial until a step fails or is skipped. Then yields the result of the
    clean-up, which removes the topic of the trial.

    The caller must always close the generator. If the caller stops early, for example after Ctrl-C,
    the call of ``close`` runs the clean-up.
    """
    trial = _Trial(client, config, timeout_ms)
    try:
        for step in trial.steps():
            yield step
            if step.state in (StepState.FAILED, StepState.SKIPPED):
                break
    finally:
        (left,) = step_of(_CLEAN, trial.clean_up)
        if left.state is StepState.FAILED:
            # (Whoever interrupted the trial does not see the row.)
            warn(_log, Kind.LEFT_BEHIND, "%s", left.said)
    yield left


class _Trial:
    """A trial of transactions in its own topic. ``_open`` is the trial's current transaction, or
    None if every transaction of the trial has ended.
    """

    def __init__(self, client: TransactionClient, config: SinkConfig, timeout_ms: int) -> None:
        begun = time.gmtime(client.clock.wall_ms() / 1000)
        self._name = f"{time.strftime(_BEGUN, begun)}-{uuid.uuid4().hex[:6]}"
        self._trials = f"{config.commit_log_topic}-check-"
        self.topic = self._trials + self._name
        self._id = (
            f"{check_id(config.transactional_id_prefix or DEFAULT_PREFIX)}{SEPARATOR}{self._name}"
        )
        self._client = client
        self._timeout_ms = timeout_ms
        self._last_ms = client.deadline(_LONGEST_MS)
        self._tp = TopicPartition(self.topic, 0)
        self._created = False
        self._open: PreparedTransaction | None = None

    def steps(self) -> Iterator[Step]:
        """Yields the results of all steps except the clean-up."""
        checks = (self._create, self._begin, self._find, self._abort, self._commit, self._fence)
        for name, check in zip(OF_TRIAL[:-1], (self._earlier, *checks), strict=True):
            yield from step_of(name, partial(_if_permitted, name, check))

    def clean_up(self) -> Step:
        """Ends the open transaction and deletes the topic, even after an error. Does nothing if no
        topic was created.
        """
        deadline_ms = self._client.deadline(_CLEAN_MS)
        if not self._created:
            return ok(_CLEAN, "nothing was created")
        try:
            if self._open is not None:
                self._client.fence([self._id], deadline_ms)
        except KafkaError as error:  # it times out, in a topic that is deleted
            _log.debug("the trial's transaction %s: %s", self._id, error.one_line())
        try:
            delete_topics(self._client, (self.topic,), deadline_ms)
        except KafkaError as error:
            return red(
                _CLEAN,
                f"the topic {self.topic} is still there: {error.message}",
                f"delete it: {_deletion(self.topic)}",
                Kind.LEFT_BEHIND,
            )
        return ok(_CLEAN, f"{self.topic} is deleted")

    # -- the steps ----------------------------------------------------------------------------

    def _earlier(self) -> Step:
        """Deletes the topics of earlier trials that were killed. A topic that is not deleted is
        shown in a warning.

        A topic is deleted only if its trial began more than a day ago. A younger trial may still be
        running.
        """
        now_s = self._client.clock.wall_ms() / 1000
        begun = {
            topic: when
            for topic in self._client.topic_names(self._soon())
            if (when := _begun_s(topic, self._trials)) is not None
        }
        dead = sorted(topic for topic, when in begun.items() if now_s - when > _DEAD_S)
        left = sorted(begun.keys() - set(dead))
        if dead:
            try:
                delete_topics(self._client, dead, self._soon())
            except KafkaError as error:
                said = f"of checks that were killed: {named(dead, _MOST_NAMED)}; {error.message}"
                return yellow(_EARLIER, said, _deletion(dead[0]), Kind.LEFT_BEHIND)
        if left:
            return yellow(
                _EARLIER,
                f"of a check that runs now, or was killed: {named(left, _MOST_NAMED)}",
                f"if no other check runs: {_deletion(left[0])} (a check deletes it after a day)",
                Kind.LEFT_BEHIND,
            )
        deleted = f"deleted, of checks that were killed: {named(dead, _MOST_NAMED)}"
        return ok(_EARLIER, deleted if dead else "no topic of theirs is left")

    def _create(self) -> Step:
        new = NewTopic(self.topic, 1, -1, {_POLICY: "compact"})
        self._created = True  # perhaps, if the response does not come
        try:
            self._client.create_topic(new, timeout_ms=self._timeout_ms)
        except AuthorizationError as error:
            self._created = False
            named = self.topic.removesuffix(self._name)
            hint = f"the principal needs CREATE, DELETE, READ and WRITE on topics '{named}...'"
            raise AuthorizationError(error.message, hint=hint, code=error.code) from error
        except ApiError:
            self._created = False
            raise
        found = self._client.topic_configs((self.topic,), (_POLICY,), self._soon())[self.topic]
        if not found:
            return ok(
                _TOPIC, f"{self.topic}; the principal has no right to read its cleanup.policy"
            )
        if found.get(_POLICY) != "compact":
            return _red(
                _TOPIC,
                f"{self.topic} was created with cleanup.policy=compact, and has "
                f"{found.get(_POLICY)}: a commit log would lose decisions",
            )
        return ok(_TOPIC, f"{self.topic}, compacted")

    def _begin(self) -> Step:
        producer = self._write(b"aborted")
        limit_ms = self._client.config.transaction_timeout_ms
        return ok(
            _OPEN,
            f"producer {producer.producer_id}, epoch {producer.producer_epoch}, of transaction "
            f"version {producer.transaction_version}, with a timeout of {limit_ms} ms",
        )

    def _find(self) -> Step:
        """Tries DescribeTransactions, which a commit needs. Also tries the requests that find
        orphaned transactions and transactions that block a partition.
        """
        prepared = self._opened
        found = self._client.describe([self._id], self._soon())[self._id]
        identity = (found.producer_id, found.producer_epoch)
        if found.state is not TransactionState.ONGOING or identity != (
            prepared.producer_id,
            prepared.producer_epoch,
        ):
            said = found.state.value if found.error is ErrorCode.NONE else found.error.name
            return _red(
                _LISTED,
                f"it is open, and its coordinator says {said}, producer {found.producer_id}, epoch "
                f"{found.producer_epoch}: a commit could not find out whether its rows are there",
            )
        lacking = [*self._not_listed()]
        if found.start_ms < 0:
            lacking.append("its age is not known")
        if not self._is_described():
            lacking.append("DescribeProducers leaves it out, or needs READ on the topic")
        if lacking:
            return yellow(
                _LISTED,
                "; ".join(lacking),
                "commits and replays work; the open transactions of a driver that died may stay "
                "unseen, and then block consumers until kafka.transaction.timeout.ms",
                Kind.ORPHANS_UNSEEN,
            )
        age_ms = found.age_ms(self._client.clock.wall_ms())
        return ok(_LISTED, f"listed, described, open for {age_ms} ms by this machine's clock")

    def _abort(self) -> Step:
        if self._visible(0):
            return _red(_ABORTED, "read_committed sees a row before it is committed")
        aborted = self._end(committed=False)
        if self._visible(1):
            return _red(_ABORTED, "read_committed sees a row that was aborted")
        said = "read_committed does not see it, before the abort and after it"
        return self._as_described(_ABORTED, said, aborted, Outcome.LOST)

    def _commit(self) -> Step:
        self._write(b"committed")
        committed = self._end(committed=True)
        if self._visible(2) != [b"committed"]:
            return _red(_COMMITTED, "read_committed does not see exactly the row that is committed")
        said = "read_committed sees this record and no other record"
        return self._as_described(_COMMITTED, said, committed, Outcome.COMMITTED)

    def _as_described(
        self, name: str, said: str, ended: PreparedTransaction, wanted: Outcome
    ) -> Step:
        """Compares the outcome of the transaction ``ended`` with the expected outcome ``wanted``.
        Returns the result of the step ``name``.

        The outcome comes from the transaction's coordinator (DescribeTransactions). A real commit
        makes the same comparison if EndTxn got no clear response.
        """
        found = self._client.describe([self._id], self._soon())[self._id]
        outcome = Outcome.COMMITTED if is_committed(ended, found) else outcome_of(ended, found)
        state = found.state.value if found.error is ErrorCode.NONE else found.error.name
        now = f"its coordinator says {state}, epoch {found.producer_epoch}"
        if outcome is wanted:
            return ok(name, f"{said}; {now}")
        if outcome is not Outcome.UNKNOWN:
            return _red(name, f"{said}, and {now}: that is {outcome.value}, not {wanted.value}")
        return yellow(
            name,
            f"{said}, but {now} (it was open in epoch {ended.producer_epoch}), which is neither "
            "an abort nor a commit of Apache Kafka",
            "rows are committed; a batch whose driver dies after its decision and comes back after "
            "kafka.transaction.timeout.ms, or whose last answer is lost, stays unresolved until "
            "'kprod txn resolve --force'",
            Kind.OUTCOME_UNKNOWN,
        )

    def _fence(self) -> Step:
        fenced = self._write(b"fenced")
        self._client.init_producer_id(
            self._id, self._client.config.transaction_timeout_ms, self._soon()
        )
        answer = self._end_txn(fenced, committed=True)
        self._open = None
        if answer is None or answer is ErrorCode.NONE:
            said = "got no clear answer" if answer is None else "was accepted"
            return _red(_FENCED, f"the commit of a fenced epoch {said}")
        if self._visible(3) != [b"committed"]:
            return _red(_FENCED, "read_committed sees the row of a fenced producer")
        return ok(_FENCED, f"the commit of a fenced epoch is refused ({answer.name})")

    # -- requests -----------------------------------------------------------------------------

    @property
    def _opened(self) -> PreparedTransaction:
        assert self._open is not None
        return self._open

    def _write(self, value: bytes) -> PreparedTransaction:
        """Begins a transaction, writes one record with ``value``, and returns the open
        transaction.
        """
        self._open = PreparedTransaction(self._id, -1, -1, 1)  # perhaps, from now on
        record = TopicRecord(self.topic, value, _KEY, "the trial's")
        self._open = prepare(self._client, self._id, record, self._soon())
        return self._open

    def _end_txn(self, transaction: PreparedTransaction, *, committed: bool) -> ErrorCode | None:
        """Sends EndTxn. Returns the error code of the response. Without a clear response, returns
        None.
        """
        # As if the partition's leader was checked now: the leader has just acknowledged a record.
        looked_ms = self._client.clock.now_ms()
        ended = self._client.end(
            [transaction], committed=committed, deadline_ms=self._soon(), looked_ms=looked_ms
        )
        return ended[self._id]

    def _end(self, *, committed: bool) -> PreparedTransaction:
        """Commits or aborts the open transaction, and returns it. Raises KafkaTimeoutError if the
        coordinator gives no clear response. If the coordinator refuses, raises the error of the
        refusal.
        """
        ended = self._opened
        where = f"EndTxn of the transactional id '{self._id}'"
        code = self._end_txn(ended, committed=committed)
        if code is None:
            raise KafkaTimeoutError(f"{where} got no clear answer")
        if code is not ErrorCode.NONE:
            raise code.error(where)
        self._open = None
        return ended

    def _visible(self, ended: int) -> list[bytes]:
        """Returns the values of the rows that a consumer with isolation.level=read_committed sees.

        First waits until the log has a marker for each ended transaction, and the last stable
        offset is after these markers. ``ended`` is the number of ended transactions. Raises
        KafkaTimeoutError if the wait takes too long.
        """
        deadline_ms, attempts = self._soon(), 0
        while True:
            batches = list(read_batches(self._read(read_committed=False), _is_ours))
            found = self._read(read_committed=True)
            markers = [batch.next_offset for batch in batches if batch.marker is not None]
            if len(markers) == ended and found.last_stable_offset >= max(markers, default=0):
                return _committed(found)
            if self._client.clock.now_ms() >= deadline_ms:
                raise KafkaTimeoutError(
                    f"{self._tp} has {len(markers)} markers of {ended} ended transactions, and the "
                    f"last stable offset {found.last_stable_offset}",
                    hint="consumers of committed rows would wait there",
                )
            self._client.loop.pause(attempts, deadline_ms)
            attempts += 1

    def _read(self, *, read_committed: bool) -> FetchedPartition:
        request = fetch(self._tp, 0, read_committed=read_committed)
        call = Call(
            request,
            Leader(self._tp),
            f"Fetch of {self._tp}",
            lambda response: FetchedPartition.of(request, response).error,
            "READ on the topic",
        )
        response = self._client.loop.send_and_receive(call, self._soon())
        return FetchedPartition.of(request, response)

    def _not_listed(self) -> Iterator[str]:
        """Yields a text if ListTransactions does not show the open transaction of the trial. If
        ListTransactions shows the transaction, yields nothing.

        The sweep needs ListTransactions to find the transactions of a dead driver.
        """
        try:
            listed, silent = self._client.open_transactions(self._id, self._soon())
        except UnsupportedVersionError:
            yield "ListTransactions is not offered"
            return
        if self._id not in {one.transactional_id for one in listed}:
            yield f"ListTransactions leaves it out{' (a broker is silent)' * bool(silent)}"

    def _is_described(self) -> bool:
        """Whether the partition's leader reports the open transaction (DescribeProducers)."""
        call = Call(
            describe_producers(self._tp),
            Leader(self._tp),
            "DescribeProducers",
            lambda response: described(response).error_code,
        )
        try:
            found = self._client.loop.send_and_receive(call, self._soon())
        except KafkaError:
            return False
        return any(
            one.producer_id == self._opened.producer_id and one.current_txn_start_offset >= 0
            for one in described(found).active_producers
        )

    def _soon(self) -> int:
        return min(self._client.deadline(self._timeout_ms), self._last_ms)


def _begun_s(topic: str, prefix: str) -> float | None:
    """The start time of a trial in seconds since the epoch, from the name of the trial's topic.
    None if the topic belongs to no trial.
    """
    name = _NAME.fullmatch(topic.removeprefix(prefix)) if topic.startswith(prefix) else None
    if name is None:
        return None
    try:
        return calendar.timegm(time.strptime(name[1], _BEGUN))
    except ValueError:
        return None


def _deletion(topic: str) -> str:
    return f"kafka-topics.sh --bootstrap-server ... --delete --topic {topic}"


def delete_topics(client: AdminClient, topics: Sequence[str], deadline_ms: int) -> None:
    """Deletes ``topics``. A topic that does not exist is not an error. Raises the error of the
    first topic that can't be deleted.
    """

    def error_in(response: DeleteTopicsResponse) -> ErrorCode:
        codes = (topic.error_code for topic in response.responses)
        gone = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return next((code for code in codes if code not in gone), ErrorCode.NONE)

    remaining = max(1, deadline_ms - client.clock.now_ms())
    request = DeleteTopicsRequest(topic_names=topics, timeout_ms=remaining)
    what = f"DeleteTopics of {', '.join(topics)}"
    call = Call(request, AnyBroker(), what, error_in, "DELETE on the topic")
    client.loop.send_and_receive(call, deadline_ms)


def _if_permitted(name: str, check: Callable[[], Step]) -> Step:
    """Runs ``check``. If the principal lacks a right that ``check`` needs, the state of the result
    is SKIPPED.
    """
    try:
        return check()
    except AuthorizationError as error:
        # (A write may work without this right.)
        return skipped(name, f"it can't be tried: {error.message} ({error.hint})")


def _red(name: str, said: str) -> Step:
    return red(name, said, _NOT_HERE, Kind.NO_EXACTLY_ONCE)


def _is_ours(key: bytes) -> bool:
    return key == _KEY


def _committed(found: FetchedPartition) -> list[bytes]:
    """The values of the committed rows in a fetched part of the log.

    A broker's response also has the rows of aborted transactions. They are dropped as in Java's
    consumer: a row is aborted if it has the producer id of an aborted transaction, and its offset
    is between the first offset and the abort marker of this transaction.
    """
    aborted, dropped, rows = sorted(found.aborted, key=lambda one: one[1]), set[int](), []
    for batch in read_batches(found, _is_ours):
        while aborted and aborted[0][1] <= batch.last_offset:
            dropped.add(aborted.pop(0)[0])
        if batch.marker is ControlType.ABORT:
            dropped.discard(batch.producer_id)
        elif batch.producer_id not in dropped:
            rows += [record.value or b"" for record in batch.records]
    return rows
