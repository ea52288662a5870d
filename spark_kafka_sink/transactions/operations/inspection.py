"""Shows operators the open transactions and the commit-log states under one transactionalIdPrefix.

:class:`Inspector` reads open transactions from the brokers, and states from the commit log. It
changes nothing, and fences no driver. So a driver may change a state right after it was read.
``operator.py`` therefore fences the drivers and reads again before it changes anything. Writes of
the sink don't use this module.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ConfigError, RefusedError, named, safe_text
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.ending import ENDING, described_when_ended
from spark_kafka_sink.transactions.outcomes import Outcome, outcome_of
from spark_kafka_sink.transactions.transactional_ids import (
    SEPARATOR,
    TransactionalId,
    check_id,
    check_part,
    parse,
    prefix_of_key,
)

#: The maximum number of keys that an error lists. The error also has the number of all keys.
_NAMED: Final = 8
#: The states of a transaction for whose end read_committed consumers wait.
OPEN: Final = (TransactionState.ONGOING, *ENDING)


@dataclass(frozen=True, slots=True)
class DecidedBy:
    """The decision to commit a transaction. It is in the state of the key ``key`` in the commit
    log. ``number`` is the number of the batch that is decided.
    """

    key: str
    number: int


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """An open transaction of a task.

    * ``found``: the coordinator's description of the transaction.
    * ``standing``: whether the transaction's run may still commit. A run is one start of a query or
      a job.
    * ``decided``: the decision to commit the transaction, or None.
    * ``age_ms``: the age in milliseconds, by this machine's clock. The age is None if the
      coordinator does not return the start of the transaction.
    """

    id: TransactionalId
    found: TransactionDescription
    standing: Standing
    decided: DecidedBy | None
    age_ms: int | None


@dataclass(frozen=True, slots=True)
class DecidedTransaction:
    """A transaction of a decided batch, and the outcome of the transaction.

    ``found`` is the coordinator's description of the transaction, which shows the outcome.
    """

    transaction: PreparedTransaction
    found: TransactionDescription
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class KeyReport:
    """The state of a key of the commit log.

    ``transactions``: if ``state`` has the decision to commit a batch, the transactions of this
    batch. In all other cases, empty.
    """

    key: str
    state: CommitState
    transactions: tuple[DecidedTransaction, ...] = field(default=(), repr=False)

    def with_outcome(self, *outcomes: Outcome) -> tuple[DecidedTransaction, ...]:
        """The transactions that have one of ``outcomes``."""
        return tuple(t for t in self.transactions if t.outcome in outcomes)


@dataclass(frozen=True, slots=True)
class Overview:
    """The open transactions and the commit-log states of one transactionalIdPrefix.

    * ``open``: the open transactions of tasks.
    * ``keys``: the state of each key. None if the commit log's topic is missing.
    * ``silent``: the brokers that did not respond. Their open transactions are missing in ``open``.
    """

    open: tuple[OpenTransaction, ...]
    keys: Mapping[str, CommitState] | None
    silent: tuple[str, ...] = ()

    def known_keys(self) -> Mapping[str, CommitState]:
        """Returns ``keys``. Raises RefusedError if the commit log's topic is missing: the operator
        may have named the wrong topic, so it is unknown which transactions are decided.
        """
        return _known(self.keys)


class Inspector:
    """Reads open transactions and commit-log states for operators, and changes nothing. Each
    request may take max.block.ms.
    """

    def __init__(self, log: CommitLog, client: TransactionClient) -> None:
        self._log = log
        self._client = client

    def overview(self, prefix: str) -> Overview:
        """Reads the open transactions of ``prefix``, oldest first, and the states of its keys in
        the commit log. Raises one of these errors:

        * ConfigError: the prefix is illegal.
        * AuthorizationError: a right is missing.
        * KafkaTimeoutError: no definite response has arrived in time.
        """
        check_part("PREFIX", prefix)
        # If the right DESCRIBE is missing, a broker omits ids from its list without an error. But a
        # description of an id raises the error.
        self._client.describe([check_id(prefix)], self._client.deadline())
        # The log is read after the list, so that it has every decision that names a listed
        # transaction.
        listed, silent = self._client.open_transactions(prefix + SEPARATOR, self._client.deadline())
        ids = [one.transactional_id for one in listed if parse(one.transactional_id)]
        keys = self._log.states(prefix, self._client.deadline())
        return Overview(self.described(ids, keys or {}), keys, silent)

    def described(
        self, ids: Sequence[str], states: Mapping[str, CommitState], *, all_: bool = False
    ) -> tuple[OpenTransaction, ...]:
        """Requests the descriptions of the transactions with the ids ``ids``. Returns the open
        transactions, oldest first. With ``all_``, also returns transactions that have ended. Ids
        that are not ids of tasks are left out.

        ``states`` has the states of the commit log for the keys of these transactions, by key.
        """
        if not ids:
            return ()
        decided = decided_ids(states)
        found = described_when_ended(self._client, ids, self._client.deadline())
        now = self._client.clock.wall_ms()
        result = []
        for one, description in found.items():
            data_id = parse(one)
            if data_id is None or not (all_ or description.state in OPEN):
                continue
            age = description.age_ms(now)
            standing = standing_of(data_id, states)
            result.append(OpenTransaction(data_id, description, standing, decided.get(one), age))
        return tuple(sorted(result, key=lambda t: (-(t.age_ms or 0), str(t.id))))

    def describe(self, name: str) -> tuple[KeyReport, ...]:
        """Returns the reports of ``name``, which is a key such as ``kprod~nightly``, or a prefix
        such as ``kprod``. For a prefix, the result has the reports of all keys with this prefix.

        Raises RefusedError if the commit log does not have the key, or no key with the prefix. The
        error lists the keys that exist.
        """
        if SEPARATOR in name:
            return (self.key(name),)
        keys = self.keys(name)
        if not keys:
            raise self._no_such_key(name, keys)
        return tuple(self.report(key, state) for key, state in sorted(keys.items()))

    def key(self, key: str) -> KeyReport:
        """The report of the key ``key``. Raises RefusedError if the commit log does not have this
        key.
        """
        keys = self.keys(prefix_of_key(check_key(key)))
        if key not in keys:
            raise self._no_such_key(key, keys)
        return self.report(key, keys[key])

    def keys(self, prefix: str) -> Mapping[str, CommitState]:
        """Reads the states of all keys of ``prefix``. Raises RefusedError if the commit log's topic
        is missing.
        """
        check_part("PREFIX", prefix)
        return _known(self._log.states(prefix, self._client.deadline()))

    def report(self, key: str, state: CommitState) -> KeyReport:
        """Creates the report of ``key``. If ``state`` has a decision to commit a batch, requests
        the descriptions of the batch's transactions from their coordinators.
        """
        if state.decision is None:
            return KeyReport(key, state)
        found = self._client.describe(state.decision.ids, self._client.deadline())
        return KeyReport(
            key,
            state,
            tuple(
                DecidedTransaction(t, d, outcome_of(t, d))
                for t in state.decision.transactions
                for d in (found[t.transactional_id],)
            ),
        )

    @staticmethod
    def _no_such_key(key: str, keys: Collection[str]) -> RefusedError:
        existing = sorted(keys)
        found = f"there are: {named(existing, _NAMED)}" if existing else "there is none"
        return RefusedError(
            f"the commit log has no key '{key}'; of the prefix '{prefix_of_key(key)}' {found}",
            hint="a stream's key is its transactionalIdPrefix, a batch job's is "
            "transactionalIdPrefix~txnAppId; a job without txnAppId leaves no key when it has "
            "committed, or aborted its batch: if its error says that the decision is not known, "
            "all brokers are up (one that is cut off may not know the key), this is its "
            "commitLogTopic and the key was not reset, nothing of it is visible",
        )


def _known(keys: Mapping[str, CommitState] | None) -> Mapping[str, CommitState]:
    if keys is None:
        raise RefusedError(
            "the topic of the commit log does not exist, so no decision is known",
            hint="--log-topic names the topic of the option commitLogTopic",
        )
    return keys


def check_key(key: str) -> str:
    """Returns ``key`` if it has a valid form: ``prefix`` or ``prefix~name``. Raises ConfigError if
    the form is not valid.
    """
    parts = key.split(SEPARATOR)
    if len(parts) > 2:
        raise ConfigError(
            f"KEY is '{safe_text(key, 220)}'; it is a prefix, or prefix~name",
            hint="that looks like a transactional id; 'kprod txn list' shows the keys",
        )
    for part in parts:
        check_part("KEY", part)
    return key


def decided_ids(states: Mapping[str, CommitState]) -> dict[str, DecidedBy]:
    """Collects the transactional ids of all decisions in ``states``. Returns a map from each id to
    its decision.
    """
    return {
        one: DecidedBy(key, state.decision.number)
        for key, state in states.items()
        if state.decision is not None
        for one in state.decision.ids
    }


def standing_of(one: TransactionalId, states: Mapping[str, CommitState]) -> Standing:
    """Returns the standing of the run of the transaction ``one``: whether the run may still commit.

    ``states`` has the states of the commit log by key. If the key of ``one`` is not there, the
    standing is UNKNOWN.
    """
    state = states.get(one.key)
    return Standing.UNKNOWN if state is None else state.standing(one.run, one.planned)
