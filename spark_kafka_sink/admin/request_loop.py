"""Sends many requests in parallel, on the calling thread, until each request has a final response.

:class:`RequestLoop` sends the calls of ``call.py`` with one network client. It finds the
coordinators of many transactional ids with one request, and caches them. Several requests can be in
flight on one connection, which saves round trips. The callers create the requests, and decide what
a response means.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Final, TypeVar, cast

from spark_kafka_sink.admin.call import (
    AnyBroker,
    Call,
    CoordinatorKey,
    Leader,
    Resend,
    RetryDecision,
    refusal,
    retry_decision,
)
from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import NEVER, Clock, SystemClock
from spark_kafka_sink.base.errors import (
    ApiError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_factory import (
    new_network_client,
    with_bootstrap_addresses,
)
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.protocol.cluster import Cluster, Node, TopicPartition
from spark_kafka_sink.protocol.messages.find_coordinator import FindCoordinatorResponse
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse
from spark_kafka_sink.protocol.request import ApiKey, Request
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType, find_coordinator

ResponseT = TypeVar("ResponseT")
#: A function that creates the network client, with sockets or with a simulated network.
NewClient = Callable[[ProducerConfig, Metadata, Clock], KafkaClient]

#: Requests in flight to one broker. More would only wait there. (Nothing here needs the order
#: that more than five would break.)
_IN_FLIGHT: Final = 100
#: The first backoff of a retry, in ms. It is short because the reason of CONCURRENT_TRANSACTIONS is
#: often gone after some milliseconds. The backoff doubles, up to retry.backoff.max.ms.
FIRST_BACKOFF_MS: Final = 2
#: The longest poll while no broker is ready, in ms: one may become ready without an event.
_POLL_MS: Final = 100
#: The longest poll of a run that is watched, in ms. A turn that takes twice as long shows that this
#: process was suspended.
_WATCH_MS: Final = 500
#: Between two calls of ``RequestLoop.on_progress``.
_PROGRESS_MS: Final = 200
#: Ids in one FindCoordinator: with ids of 300 bytes the request stays below 512 KiB.
_MOST_IDS: Final = 1000
#: The first version of FindCoordinator with several ids (KIP-699, brokers since 3.0).
_MANY_IDS: Final = 4
_NAMES: Final = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}
#: Cached coordinators, at most; a client may serve a stream for weeks.
_MOST_COORDINATORS: Final = 100_000


class AdminMetadata(Metadata):
    """The cluster metadata for administrative requests. Only one thread may use it. It is a
    subclass of the producer's metadata, so that the driver raises the same errors as the tasks.

    In addition it stores these values:

    * ``answers``: the number of Metadata responses so far.
    * ``topic_errors``: the error code of each topic, from the last response with this topic. NONE
      means no error.
    * ``failure``: the fatal error of a Metadata request, or None. The next Metadata response resets
      ``failure`` to None. :class:`RequestLoop` resets ``failure`` each time it begins to poll.
    """

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        self.allow_auto_topic_creation = False
        self.answers = 0
        self.topic_errors: dict[str, ErrorCode] = {}
        self.failure: KafkaError | None = None

    def new_request(self, now: int) -> tuple[MetadataRequest, int]:
        request, token = super().new_request(now)
        return replace(request, allow_auto_topic_creation=self.allow_auto_topic_creation), token

    def update(self, token: int, response: MetadataResponse, now: int) -> None:
        super().update(token, response, now)
        self.answers += 1
        self.failure = None
        self.topic_errors |= {topic.name: topic.error for topic in response.topics}

    def failed_update(self, now: int, error: KafkaError | None) -> None:
        super().failed_update(now, error)
        if error is not None:
            self.failure = error


class RequestLoop:
    """Sends many calls in parallel with one network client. Only one thread at a time may use a
    loop. The constructor raises ConfigError if no bootstrap server can be resolved.

    After a KeyboardInterrupt in a method, the next method closes the connections and opens new
    ones. So it does not receive the responses to requests of the interrupted method.
    """

    def __init__(
        self, config: ProducerConfig, clock: Clock | None, new_client: NewClient | None
    ) -> None:
        if new_client is None:
            config = with_bootstrap_addresses(config)
        self.config = replace(config, max_in_flight_requests_per_connection=_IN_FLIGHT)
        self.clock = SystemClock() if clock is None else clock
        self.metadata = AdminMetadata(self.config, self.clock)
        self.backoff = ExponentialBackoff(
            min(FIRST_BACKOFF_MS, config.retry_backoff_ms), config.retry_backoff_max_ms
        )
        #: The cached coordinators.
        self.found: dict[CoordinatorKey, Node] = {}
        #: True after a request was sent.
        self.reached = False
        self._new_client = new_client or new_network_client
        #: A function with two arguments: the number of finished calls of a run, and the number of
        #: all calls of the run. It is called at least every _PROGRESS_MS, and when the run ends,
        #: even by an exception.
        self.on_progress: Callable[[int, int], None] | None = None
        self._interrupted = False
        self._ran_ms = 0
        #: The last turn of :meth:`poll_until`, and the time at which this process has last
        #: continued after a suspension.
        self._turn_ms = 0
        self._resumed_ms = 0
        self.client = self._connect()

    def _connect(self) -> KafkaClient:
        """Creates a network client. The client's own requests (ApiVersions and Metadata) have a
        short timeout: the connection setup timeout.
        """
        # With the longer request.timeout.ms, the client would wait too long for a stopped broker
        # process, whose operating system still accepts connections.
        own_ms = min(self.config.request_timeout_ms, self.config.socket_connection_setup_timeout_ms)
        config = replace(self.config, request_timeout_ms=own_ms)
        client = self._new_client(config, self.metadata, self.clock)
        self.metadata.attach(client.wakeup, client.connection_failures)
        return client

    def close(self) -> None:
        """Closes all connections."""
        self.client.close()

    @property
    def cluster(self) -> Cluster:
        """The current metadata. Before the first response they contain only the bootstrap
        servers.
        """
        return self.metadata.cluster

    def run(
        self, calls: Iterable[Call[ResponseT]], deadline_ms: int, *, is_watched: bool = False
    ) -> bool:
        """Sends ``calls`` and the calls that follow them (``Call.then``), and handles their
        responses. Ends when all calls have ended, or at ``deadline_ms`` (a time of the clock in
        ms).

        Returns True if each call has a final response. With ``is_watched``, the run notices if this
        process was suspended for a second or longer, for example by SIGSTOP (see
        ``Call.answered_ms``).

        Raises one of these errors. Then some of the other calls may be done or in flight.

        * AuthorizationError: the principal does not have the right to find a coordinator.
        * AuthenticationError: a broker has refused the login.
        * UnsupportedVersionError: a broker does not support a request.
        * The errors of :meth:`Call.retry_code`.
        """
        if len(self.found) > _MOST_COORDINATORS:
            self.found.clear()
        self._ran_ms = deadline_ms - self.clock.now_ms()
        dispatcher = _Dispatcher(self, cast("list[Call[object]]", list(calls)), deadline_ms)
        report = self.on_progress

        def check(now: int) -> int | None:
            wait = dispatcher.advance(now)
            if is_watched and wait is not None:
                wait = min(wait, _WATCH_MS)
            if report is None or wait is None:
                return wait
            total = len(dispatcher.calls)
            report(total - dispatcher.open, total)
            return min(wait, _PROGRESS_MS)

        try:
            self.poll_until(check, deadline_ms)
        finally:
            if report is not None:
                report(len(dispatcher.calls), len(dispatcher.calls))
        dispatcher.ended = True
        return all(call.done for call in dispatcher.calls)

    def send_and_receive(
        self, call: Call[ResponseT], deadline_ms: int, *, is_watched: bool = False
    ) -> ResponseT:
        """Sends one call and returns its response. Raises the errors of :meth:`receive_all`."""
        return self.receive_all([call], deadline_ms, is_watched=is_watched)[0]

    def receive_all(
        self, calls: Sequence[Call[ResponseT]], deadline_ms: int, *, is_watched: bool = False
    ) -> list[ResponseT]:
        """Sends ``calls`` and returns their responses in the order of ``calls``. Raises the errors
        of :meth:`run`. If a call is not done in time, raises KafkaTimeoutError.
        """
        if not self.run(calls, deadline_ms, is_watched=is_watched):
            raise self.timeout(calls)
        return [cast("ResponseT", call.response) for call in calls]

    def poll_until(self, check: Callable[[int], int | None], deadline_ms: int) -> bool:
        """Polls the network client until ``check(now)`` returns None, or until ``deadline_ms``.
        Returns False at the deadline, otherwise True.

        If ``check`` returns a number, it is called again after at most this number of ms, or after
        a network event. Raises the exceptions of ``check``, and a fatal error of a Metadata
        request.
        """
        with self._reset_after_interrupt():
            while True:
                if self.metadata.failure is not None:
                    raise self.metadata.failure
                now = self.clock.now_ms()
                self.notice(now)
                wait = check(now)
                if wait is None or now >= deadline_ms:
                    return wait is None
                self.client.poll(max(0, min(wait, deadline_ms - now)), now)

    def notice(self, now: int) -> int:
        """Returns the time in ms at which this process has last continued after a suspension, for
        example by SIGSTOP. ``now`` is the current time. If the previous call of this method was
        more than a second before ``now``, the process counts as suspended until ``now``.
        """
        if now - self._turn_ms > 2 * _WATCH_MS:
            self._resumed_ms = now
        self._turn_ms = now
        return self._resumed_ms

    def pause(self, attempts: int, deadline_ms: int) -> None:
        """Waits for a backoff, or until ``deadline_ms``. The backoff grows with ``attempts``, the
        number of earlier waits. After the wait, the caller sends its calls again.
        """
        until = min(deadline_ms, self.clock.now_ms() + self.backoff.backoff(attempts))
        with self._reset_after_interrupt():
            while (now := self.clock.now_ms()) < until:
                self.client.poll(until - now, now)

    @contextmanager
    def _reset_after_interrupt(self) -> Iterator[None]:
        """A context manager around the polls of the network client. If the previous polls were
        interrupted, it first closes all connections and creates a new client.
        """
        # An interrupted poll may have read a response without handling it.
        if self._interrupted:
            self.client.close()
            self.client = self._connect()
        self._interrupted = True
        # The cause of an earlier call's error may have been fixed by an administrator.
        self.metadata.failure = None
        try:
            yield
        except Exception:
            self._interrupted = False
            raise
        self._interrupted = False

    def timeout(self, calls: Sequence[Call[ResponseT]]) -> KafkaTimeoutError:
        """Creates the error for calls that are not done at the deadline. The error describes the
        first of these calls. If no broker has responded at all, the error lists the addresses with
        the reasons of their failures.
        """
        call = next((c for c in calls if not c.done or c.last_code is not None), calls[0])
        if self._ran_ms > 0 and not (self.reached or self.metadata.answers):
            return self.metadata.no_broker_answered(self._ran_ms, f"{call.what} got no answer")
        hint = None if call.answered else self.metadata.addresses_tried()
        return KafkaTimeoutError(
            f"{call.what} has no clear answer in time ({call.last_status})",
            hint=hint if call.last_code is None else call.last_code.info.hint,
            kind=call.last_code,
        )

    def coordinators(self, ids: Collection[str], deadline_ms: int) -> Mapping[str, Node]:
        """Finds the coordinator of each transactional id. Raises KafkaTimeoutError if a coordinator
        is not found in time.
        """
        calls: list[Call[object]] = [Call(None, CoordinatorKey(i), "FindCoordinator") for i in ids]
        self.receive_all(calls, deadline_ms)
        return {i: self.found[CoordinatorKey(i)] for i in ids}

    def forget_coordinators(self, transactional_ids: Iterable[str]) -> None:
        """Removes the coordinators of these ids from the cache."""
        for transactional_id in transactional_ids:
            self.found.pop(CoordinatorKey(transactional_id), None)


class _Dispatcher:
    """Holds the calls of one :meth:`RequestLoop.run`, and decides when and to which broker each
    call is sent.

    A call that has not ended is in flight, or in exactly one of these collections:

    * ``_queues``: the calls whose broker is known.
    * ``_for_any_broker``: the calls that any broker can handle.
    * ``_awaiting_coordinator``: the calls whose coordinator must be found first.
    * ``_backing_off``: the calls that wait for a backoff.
    """

    def __init__(self, loop: RequestLoop, calls: list[Call[object]], deadline_ms: int) -> None:
        self.calls = calls
        #: True after the end of the run. Responses that arrive later are ignored.
        self.ended = False
        self._loop = loop
        self._deadline_ms = deadline_ms
        #: The number of calls that have not ended.
        self.open = len(calls)
        self._queues: dict[int, deque[Call[object]]] = {}
        self._nodes: dict[int, Node] = {}
        self._for_any_broker: deque[Call[object]] = deque()
        self._awaiting_coordinator: dict[CoordinatorKey, list[Call[object]]] = {}
        self._to_find: dict[CoordinatorKey, None] = {}
        self._order = count()
        self._backing_off = [(0, next(self._order), call) for call in calls]
        self._failure: KafkaError | None = None

    @property
    def _client(self) -> KafkaClient:
        return self._loop.client

    def advance(self, now: int) -> int | None:
        """Sends the calls that can be sent now, at most one from each queue. Returns the next poll
        timeout in ms, or None if all calls have ended.
        """
        if self._failure is not None:
            raise self._failure
        if self.open == 0:
            return None
        if now >= self._deadline_ms:
            return 0
        later = self._backing_off
        while later and later[0][0] <= now:
            self._route(heapq.heappop(later)[2], now)
        if self.open == 0:
            return None  # calls without a request only needed their coordinator
        wait = later[0][0] - now if later else NEVER
        if self._to_find:
            wait = min(wait, self._find_coordinators(now))
        if self._for_any_broker:
            node, until_ready = self._any_broker(now)
            wait = min(wait, until_ready)
            if node is not None:
                self._send(self._for_any_broker.popleft(), node, now)
        # (A broker can get more calls only after the socket has accepted the previous request.)
        for node_id, queue in self._queues.items():
            if queue:
                wait = min(wait, self._send_to(self._nodes[node_id], queue, now))
        return wait

    def _send_to(self, node: Node, queue: deque[Call[object]], now: int) -> int:
        while queue and now > queue[0].send_by_ms:
            self._end(queue.popleft(), done=False)
        if not queue:
            return 0  # the last call may have ended
        if self._client.ready(node, now):
            self._send(queue.popleft(), node, now)
            return NEVER
        wait = self._until_ready(node, now)
        if self._client.connection_failed(node):
            calls = list(queue)
            queue.clear()
            for call in calls:
                self._lost(call, now, f"broker {node} can't be reached")
        return wait

    def _route(self, call: Call[object], now: int) -> None:
        to = call.to
        metadata = self._loop.metadata
        if isinstance(to, CoordinatorKey):
            node = self._loop.found.get(to)
            if node is None:
                if to not in self._awaiting_coordinator:
                    self._awaiting_coordinator[to] = []
                    self._to_find[to] = None
                self._awaiting_coordinator[to].append(call)
                return
            if call.request is None:
                self._end(call, done=True)
                return
        elif isinstance(to, Leader):
            node = metadata.cluster.leader_for(to.tp)
            if node is None:
                self._await_leader(call, to.tp, now)
                return
        elif isinstance(to, AnyBroker):
            self._for_any_broker.append(call)
            return
        else:
            node = to
        self._nodes[node.id] = node
        self._queues.setdefault(node.id, deque()).append(call)

    def _await_leader(self, call: Call[object], tp: TopicPartition, now: int) -> None:
        """Handles a call whose partition ``tp`` has no known leader: schedules a retry of the call,
        and requests the metadata of the topic. Raises AuthorizationError if the principal may not
        see the topic.
        """
        metadata, topic = self._loop.metadata, tp.topic
        if not call.attempts:
            metadata.topic_errors.pop(topic, None)  # an earlier call's
        code = metadata.topic_errors.get(topic, ErrorCode.NONE)
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise code.error(f"topic {topic}")
        metadata.add_topics((topic,), now)
        self._schedule_retry(call, now, f"the leader of {tp} is not known")

    def _reroute(
        self, call: Call[object], now: int, why: str, code: ErrorCode | None = None
    ) -> None:
        """Schedules a retry of a call, for which the broker is looked up again. Used if the broker
        can't be reached, or is not the coordinator or leader any more.
        """
        if isinstance(call.to, CoordinatorKey):
            self._loop.found.pop(call.to, None)
        elif isinstance(call.to, Leader):
            self._loop.metadata.request_update()
        self._schedule_retry(call, now, why, code)

    def _schedule_retry(
        self, call: Call[object], now: int, why: str, code: ErrorCode | None = None
    ) -> None:
        call.last_status, call.last_code = why, code
        if call.resend is Resend.NEVER:
            self._end(call, done=False)
            return
        wait = self._loop.backoff.backoff(call.attempts)
        call.attempts += 1
        heapq.heappush(self._backing_off, (now + wait, next(self._order), call))

    def _lost(self, call: Call[object], now: int, why: str) -> None:
        if call.resend is Resend.AFTER_CODE:
            call.last_status = why
            self._end(call, done=False)
        else:
            self._reroute(call, now, why)

    def _end(self, call: Call[object], *, done: bool) -> None:
        call.done = done
        self.open -= 1
        if done and call.then is not None:
            for following in call.then():
                self.calls.append(following)
                self.open += 1
                heapq.heappush(self._backing_off, (0, next(self._order), following))

    def _any_broker(self, now: int) -> tuple[Node | None, int]:
        """Returns two values. The first is the least loaded broker, or None if no request can be
        sent to this broker now. The second is the next poll timeout in ms.
        """
        node = self._client.least_loaded_node(now)
        if node is None:
            self._loop.metadata.request_update()
            return None, _POLL_MS
        if self._client.ready(node, now):
            return node, NEVER
        return None, self._until_ready(node, now)

    def _until_ready(self, node: Node, now: int) -> int:
        refused = self._client.authentication_error(node)
        if refused is not None:
            raise refused
        return min(_POLL_MS, self._client.poll_delay_ms(node, now))

    def _send(self, call: Call[object], node: Node, now: int) -> None:
        assert call.request is not None
        call.sent += 1
        call.sent_ms = now
        self._send_request(
            call.request, node, now, lambda response: self._handle_response(call, node, response)
        )

    def _send_request(
        self,
        request: Request[object],
        node: Node,
        now: int,
        handle: Callable[[ClientResponse], None],
    ) -> None:
        """Sends ``request`` to ``node``. ``handle`` is called with the response. If ``handle``
        raises an exception, :meth:`RequestLoop.run` raises this exception.
        """

        def callback(response: ClientResponse) -> None:
            if self.ended or self._failure is not None:
                return
            try:
                handle(response)
            except KafkaError as error:
                self._failure = error

        self._loop.reached = True
        limit = min(self._loop.config.request_timeout_ms, self._deadline_ms - now)
        self._client.send(
            self._client.new_client_request(
                node.id, request, now, request_timeout_ms=limit, callback=callback
            ),
            now,
        )

    def _handle_response(self, call: Call[object], node: Node, response: ClientResponse) -> None:
        now = response.received_ms
        if isinstance(response.error, UnsupportedVersionError):
            call.sent -= 1  # it was never sent
        if isinstance(response.error, ApiError):
            raise response.error
        if response.body is None:
            # A malformed response closes the connection, too; the request's outcome is unknown.
            self._lost(call, now, _no_response(node, response))
            return
        call.answered += 1
        call.answered_ms = now if call.sent_ms >= self._loop.notice(now) else call.sent_ms
        code = call.retry_code(response.body)
        if code is None:
            call.response = response.body
            self._end(call, done=True)
            return
        status = f"the last response, from broker {node}, was {code.name}"
        if retry_decision(code) is RetryDecision.REDISCOVER:
            self._reroute(call, now, status, code)
        else:
            self._schedule_retry(call, now, status, code)

    def _find_coordinators(self, now: int) -> int:
        node, wait = self._any_broker(now)
        if node is None:
            return wait
        known = self._client.api_versions(node.id)
        offered = None if known is None else known.api_versions.get(ApiKey.FIND_COORDINATOR)
        many = offered is not None and offered.max >= _MANY_IDS
        kind = next(iter(self._to_find)).type
        same = (one for one in self._to_find if one.type is kind)
        wanted = tuple(islice(same, _MOST_IDS if many else 1))
        for one in wanted:
            del self._to_find[one]
        request = find_coordinator([one.key for one in wanted], kind)
        self._send_request(request, node, now, lambda response: self._found(wanted, node, response))
        return NEVER

    def _found(
        self, wanted: tuple[CoordinatorKey, ...], contacted: Node, response: ClientResponse
    ) -> None:
        now, found = response.received_ms, response.body
        if isinstance(response.error, ApiError):
            raise response.error
        if not isinstance(found, FindCoordinatorResponse):
            self._loop.metadata.request_update()
            for one in wanted:
                for call in self._awaiting_coordinator.pop(one):
                    self._schedule_retry(call, now, _no_response(contacted, response))
            return
        by_key = {coordinator.key: coordinator for coordinator in found.coordinators}
        for one in wanted:
            coordinator = by_key.get(one.key, found)  # below version 4 there is no list
            code, node = coordinator.error_code, None
            if code is ErrorCode.NONE:
                node = Node(coordinator.node_id, coordinator.host, coordinator.port)
                self._loop.found[one] = node
            elif retry_decision(code) is RetryDecision.FINAL:
                what = _NAMES[one.type]
                raise refusal(
                    code, f"FindCoordinator of {what} '{one.key}'", f"DESCRIBE on the {what}"
                )
            for call in self._awaiting_coordinator.pop(one):
                if node is not None:
                    self._route(call, now)
                else:
                    last = f"the last response to FindCoordinator, from broker {contacted}, was"
                    self._schedule_retry(call, now, f"{last} {code.name}", code)


def _no_response(node: Node, response: ClientResponse) -> str:
    said = "gave no answer" if response.error is None else response.error.message
    return f"broker {node}: {said}"
