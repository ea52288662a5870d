"""Many requests at once, on the caller's thread, until each has a clear answer.

Owns: :class:`BrokerCalls`, which carries calls (``calls.py``) over the connections of one network
client, looks coordinators up, many ids in one request, and remembers them. Never: what is asked and
what an answer is worth (``transaction_client.py``), a thread, a decision.

It stands beside a record's way: the driver ends its tasks' transactions through here. A broker
works on one request of a connection at a time, so calls to one broker gain by not waiting for each
other's way there and back, not by being worked on together.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Final, TypeVar, cast

from spark_kafka_sink.admin import AdminClient, AdminMetadata, NewClient
from spark_kafka_sink.clock import NEVER, Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.protocol.cluster import Cluster, Node
from spark_kafka_sink.protocol.control_messages import CoordinatorType, FindCoordinatorRequest
from spark_kafka_sink.protocol.request import ApiKey, Request
from spark_kafka_sink.protocol.responses import FindCoordinatorResponse
from spark_kafka_sink.transactions.calls import (
    SILENCE,
    AnyBroker,
    Call,
    Coordinator,
    Leader,
    Next,
    following,
    refusal,
)

ResponseT = TypeVar("ResponseT")

#: Requests on their way to one broker. More would only wait there.
_IN_FLIGHT: Final = 100
#: The first wait before a call is made again: what CONCURRENT_TRANSACTIONS waits for takes
#: milliseconds. It doubles up to retry.backoff.max.ms.
FIRST_BACKOFF_MS: Final = 2
#: How long one poll lasts at most while a broker may become ready by itself.
_POLL_MS: Final = 100
#: Ids in one FindCoordinator: with ids of 300 bytes the request stays below 512 KiB.
_MOST_IDS: Final = 1000
#: FindCoordinator takes several ids from here on (KIP-699, brokers since 3.0).
_MANY_IDS: Final = 4
_NAMES: Final = {
    CoordinatorType.GROUP: "group",
    CoordinatorType.TRANSACTION: "transactional id",
}
#: Coordinators that are remembered; a client may serve a stream for weeks.
_MOST_COORDINATORS: Final = 100_000


class BrokerCalls(AdminClient):
    """An :class:`AdminClient` that asks many questions at once. One thread; a context manager.

    After a KeyboardInterrupt in the middle the connections are thrown away: the next call begins
    with new ones, and no answer to an old question reaches anybody.
    """

    def __init__(
        self,
        config: ProducerConfig,
        *,
        clock: Clock | None = None,
        new_client: NewClient = new_network_client,
    ) -> None:
        # Nothing here needs the order that more than five requests would break.
        config = replace(config, max_in_flight_requests_per_connection=_IN_FLIGHT)
        super().__init__(config, clock=clock, new_client=new_client)
        self._metadata.allow_auto_topic_creation = False
        self.config = config
        self._new_client = new_client
        self._coordinators: dict[Coordinator, Node] = {}
        self._short_backoff = ExponentialBackoff(
            min(FIRST_BACKOFF_MS, config.retry_backoff_ms), config.retry_backoff_max_ms
        )
        self._interrupted = False

    def run(self, calls: Iterable[Call[ResponseT]], deadline_ms: int) -> bool:
        """Until every call is done (or over), or ``deadline_ms`` of the clock is there.

        True when all are done. Raises what a ``take`` raised, AuthenticationError,
        UnsupportedVersionError, and AuthorizationError of who may not find a coordinator; other
        calls may have been answered then, or be on their way.
        """
        with self._unbroken():
            return self._run(calls, deadline_ms)

    def _run(self, calls: Iterable[Call[ResponseT]], deadline_ms: int) -> bool:
        if len(self._coordinators) > _MOST_COORDINATORS:
            self._coordinators.clear()
        whole = _Run(
            self._client,
            self._metadata,
            self._clock,
            self._coordinators,
            self._short_backoff,
            self._request_timeout_ms,
            deadline_ms,
        )
        return whole.until_done(cast("list[Call[object]]", list(calls)))

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """Polls happen in here. A poll that was left halfway may have read an answer and not told
        of it: what comes after an interrupt begins with new connections.
        """
        if self._interrupted:
            self._client.close()
            self._client = self._new_client(self.config, self._metadata, self._clock)
            self._metadata.attach(self._client.wakeup, self._client.connection_failures)
        self._interrupted = True
        # A refusal that is older than this call may have been mended by an administrator.
        self._metadata.failure = None
        try:
            yield
        except Exception:
            self._interrupted = False
            raise
        self._interrupted = False

    def _await_topics(
        self,
        topics: Collection[str],
        timeout_ms: int,
        ready: Callable[[Cluster], bool],
        believe_missing_ms: int | None = None,
    ) -> Cluster:
        with self._unbroken():
            return super()._await_topics(topics, timeout_ms, ready, believe_missing_ms)

    def _call_once(
        self,
        request: Request[ResponseT],
        deadline: int,
        choose: Callable[[Cluster], Node | None],
    ) -> ClientResponse | None:
        with self._unbroken():
            return super()._call_once(request, deadline, choose)

    def _pause(self, milliseconds: int) -> None:
        with self._unbroken():
            super()._pause(milliseconds)

    def coordinators(
        self, transactional_ids: Collection[str], deadline_ms: int
    ) -> Mapping[str, Node]:
        """Where each id's coordinator is; KafkaTimeoutError when that is not found out in time."""
        calls: list[Call[object]] = [Call(None, Coordinator(i)) for i in transactional_ids]
        if not self.run(calls, deadline_ms):
            raise self.timeout("FindCoordinator", calls)
        return {i: self._coordinators[Coordinator(i)] for i in transactional_ids}

    @property
    def cluster(self) -> Cluster:
        """As known now; without an answer so far the bootstrap servers."""
        return self._metadata.fetch()

    def brokers(self, deadline_ms: int, *, max_age_ms: int = NEVER) -> tuple[Node, ...]:
        """All brokers, as one of them said at most ``max_age_ms`` ago.

        Metadata is not asked for twice within retry.backoff.ms, so fresh ones may take so long.
        """
        now = self._clock.now_ms()
        nodes = self._metadata.fetch().nodes
        asked = min(nodes) >= 0  # else they are the bootstrap servers
        if not asked or now - self._metadata.last_success_ms > max_age_ms:
            self.describe_topics(
                (), timeout_ms=max(0, deadline_ms - now), allow_auto_topic_creation=False
            )
        return tuple(self._metadata.fetch().nodes.values())

    def forget_coordinators(self, transactional_ids: Iterable[str]) -> None:
        """Ask anew where they are."""
        for transactional_id in transactional_ids:
            self._coordinators.pop(Coordinator(transactional_id), None)

    def timeout(self, what: str, calls: Iterable[Call[ResponseT]]) -> KafkaTimeoutError:
        """For calls that are not done at their deadline."""
        open_calls = [call for call in calls if not call.done]
        told = open_calls[0].told if open_calls else SILENCE
        hint = self._metadata.addresses_tried() if told == SILENCE else None
        return KafkaTimeoutError(
            f"{what} has no clear answer in time ({told})",
            hint=hint,
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def pause(self, attempts: int, deadline_ms: int) -> None:
        """A round of calls brought too little: wait as before a call that is made again."""
        wait = self._short_backoff.backoff(attempts)
        self._pause(max(0, min(wait, deadline_ms - self._clock.now_ms())))


class _Run:
    """The calls of one :meth:`BrokerCalls.run`: which waits where.

    A call is in one place: ``_queues`` (its broker is known), ``_homeless`` (its coordinator is
    looked up), ``_later`` (it waits for its backoff), or on its way, when its callback has it.
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: AdminMetadata,
        clock: Clock,
        coordinators: dict[Coordinator, Node],
        backoff: ExponentialBackoff,
        request_timeout_ms: int,
        deadline_ms: int,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._coordinators = coordinators
        self._backoff = backoff
        self._request_timeout_ms = request_timeout_ms
        self._deadline_ms = deadline_ms
        self._open = 0
        self._queues: dict[int, deque[Call[object]]] = {}
        self._nodes: dict[int, Node] = {}
        self._anywhere: deque[Call[object]] = deque()
        self._homeless: dict[Coordinator, list[Call[object]]] = {}
        self._to_look_up: dict[Coordinator, None] = {}
        self._later: list[tuple[int, int, Call[object]]] = []
        self._order = count()
        self._failure: KafkaError | None = None
        self._ended = False

    def until_done(self, calls: list[Call[object]]) -> bool:
        """Once. See :meth:`BrokerCalls.run`."""
        self._open = len(calls)
        now = self._clock.now_ms()
        for call in calls:
            self._route(call, now)
        while True:
            if self._failure is not None:
                raise self._failure
            if self._metadata.failure is not None:
                raise self._metadata.failure
            now = self._clock.now_ms()
            if self._open == 0 or now >= self._deadline_ms:
                break
            wait = self._send_what_can_go(now)
            self._client.poll(max(0, min(wait, self._deadline_ms - now)), now)
        self._ended = True
        return all(call.done for call in calls)

    # -- where to ---------------------------------------------------------------------------------

    def _route(self, call: Call[object], now: int) -> None:
        to = call.to
        if isinstance(to, Coordinator):
            node = self._coordinators.get(to)
            if node is None:
                waiting = self._homeless.get(to)
                if waiting is None:
                    self._homeless[to] = [call]
                    self._to_look_up[to] = None
                else:
                    waiting.append(call)
                return
            if call.request is None:
                self._end(call, done=True)
                return
        elif isinstance(to, Leader):
            node = self._metadata.fetch().leader_for(to.tp)
            if node is None:
                self._metadata.add_topics((to.tp.topic,), now)
                self._again(call, now, "its leader is not known")
                return
        elif isinstance(to, AnyBroker):
            self._anywhere.append(call)
            return
        else:
            node = to
        self._nodes[node.id] = node
        self._queues.setdefault(node.id, deque()).append(call)

    def _elsewhere(self, call: Call[object], now: int, why: str) -> None:
        """Its broker is gone, or not the right one."""
        if isinstance(call.to, Coordinator):
            self._coordinators.pop(call.to, None)
        elif isinstance(call.to, Leader):
            self._metadata.request_update()
        self._again(call, now, why)

    def _again(self, call: Call[object], now: int, why: str) -> None:
        call.told = why
        wait = self._backoff.backoff(call.attempts)
        call.attempts += 1
        heapq.heappush(self._later, (now + wait, next(self._order), call))

    def _end(self, call: Call[object], *, done: bool) -> None:
        call.done, call.over = done, True
        self._open -= 1

    # -- sending ----------------------------------------------------------------------------------

    def _send_what_can_go(self, now: int) -> int:
        """At most one request to each broker (a connection takes the next one when it has left).

        Returns how long the network may be polled (ms).
        """
        later = self._later
        while later and later[0][0] <= now:
            self._route(heapq.heappop(later)[2], now)
        wait = later[0][0] - now if later else NEVER
        if self._to_look_up:
            wait = min(wait, self._look_up(now))
        if self._anywhere:
            wait = min(wait, self._send_anywhere(now))
        for node_id, queue in self._queues.items():
            if not queue:
                continue
            node = self._nodes[node_id]
            if self._client.ready(node, now):
                self._send(queue.popleft(), node, now)
            else:
                wait = min(wait, self._not_ready(node, queue, now))
        return wait

    def _not_ready(self, node: Node, queue: deque[Call[object]], now: int) -> int:
        client = self._client
        refused = client.authentication_error(node)
        if refused is not None:
            raise refused
        if client.connection_failed(node):
            calls = list(queue)
            queue.clear()
            for call in calls:
                self._lost(call, now, f"broker {node} can't be reached")
        return min(_POLL_MS, client.poll_delay_ms(node, now))

    def _send_anywhere(self, now: int) -> int:
        node = self._client.least_loaded_node(now)
        if node is None:
            self._metadata.request_update()
            return _POLL_MS
        if not self._client.ready(node, now):
            refused = self._client.authentication_error(node)
            if refused is not None:
                raise refused
            return min(_POLL_MS, self._client.poll_delay_ms(node, now))
        self._send(self._anywhere.popleft(), node, now)
        return NEVER

    def _send(self, call: Call[object], node: Node, now: int) -> None:
        assert call.request is not None
        call.sent += 1

        def answered(response: ClientResponse) -> None:
            self._take(call, response)

        self._ask(call.request, node, now, answered)

    def _ask(
        self,
        request: Request[object],
        node: Node,
        now: int,
        callback: Callable[[ClientResponse], None],
    ) -> None:
        limit = min(self._request_timeout_ms, self._deadline_ms - now)
        self._client.send(
            self._client.new_client_request(
                node.id, request, now, request_timeout_ms=limit, callback=callback
            ),
            now,
        )

    # -- answers ----------------------------------------------------------------------------------

    def _take(self, call: Call[object], response: ClientResponse) -> None:
        if self._ended or self._failure is not None:
            return  # nobody asks any more
        now = response.received_ms
        if isinstance(response.error, ApiError):
            if isinstance(response.error, UnsupportedVersionError):
                call.sent -= 1  # it never left
            self._failure = response.error
        elif response.body is None:
            # Bytes that are no answer end the connection, too; what became of it is unknown.
            said = response.error.message if response.error is not None else SILENCE
            self._lost(call, now, said)
        else:
            try:
                code = call.take(response.body)
            except KafkaError as error:
                self._failure = error
                return
            if code is None:
                self._end(call, done=True)
                return
            told = f"the last answer was {code.name}"
            if following(code) is Next.ELSEWHERE:
                self._elsewhere(call, now, told)
            else:
                self._again(call, now, told)

    def _lost(self, call: Call[object], now: int, why: str) -> None:
        if call.once:
            call.told = why
            self._end(call, done=False)
        else:
            self._elsewhere(call, now, why)

    # -- coordinators -----------------------------------------------------------------------------

    def _look_up(self, now: int) -> int:
        client = self._client
        node = client.least_loaded_node(now)
        if node is None:
            self._metadata.request_update()
            return _POLL_MS
        if not client.ready(node, now):
            refused = client.authentication_error(node)
            if refused is not None:
                raise refused
            return min(_POLL_MS, client.poll_delay_ms(node, now))
        known = client.api_versions(node.id)
        offered = None if known is None else known.api_versions.get(ApiKey.FIND_COORDINATOR)
        many = offered is not None and offered.max >= _MANY_IDS
        kind = next(iter(self._to_look_up)).type
        same = (one for one in self._to_look_up if one.type is kind)
        wanted = tuple(islice(same, _MOST_IDS if many else 1))
        for one in wanted:
            del self._to_look_up[one]

        def answered(response: ClientResponse) -> None:
            self._found(wanted, response)

        request = FindCoordinatorRequest(tuple(one.key for one in wanted), kind)
        self._ask(request, node, now, answered)
        return NEVER

    def _found(self, wanted: tuple[Coordinator, ...], response: ClientResponse) -> None:
        if self._ended or self._failure is not None:
            return
        now = response.received_ms
        if isinstance(response.error, ApiError):
            self._failure = response.error
            return
        found = response.body
        if not isinstance(found, FindCoordinatorResponse):
            self._metadata.request_update()
            for one in wanted:
                for call in self._homeless.pop(one):
                    self._again(call, now, SILENCE)
            return
        for one in wanted:
            coordinator = found.coordinators[one.key]
            code, node = coordinator.error, coordinator.node
            if node is not None:
                self._coordinators[one] = node
            elif following(code) is Next.CLEAR:
                what = _NAMES[one.type]
                self._failure = refusal(
                    code, f"FindCoordinator of {what} '{one.key}'", f"DESCRIBE on the {what}"
                )
                return
            for call in self._homeless.pop(one):
                if node is not None:
                    self._route(call, now)
                else:
                    self._again(call, now, f"FindCoordinator was answered {code.name}")
