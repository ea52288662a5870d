"""Where a connection's credential comes from (Java's ``LoginManager``).

Owns: the :class:`Login` protocol, the login of what needs no fetching, and the one that fetches on
a thread of its own and keeps what it got. Never: a frame, nor how a credential is fetched.

There is no timer: whoever authenticates asks, and a credential that is near its end is fetched
anew before it is used. A connection waits for that, the network thread does not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import AuthenticationError, ErrorCode, KafkaError, warn
from spark_kafka_sink.network.auth.sasl_mechanism import SaslMechanism
from spark_kafka_sink.network.backoff import ExponentialBackoff

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: Whatever was fetched serves those who waited for it, however short its life is.
_SHORTEST_USE_MS: Final = 1_000
_SHORTEST_PAUSE_MS: Final = 50
#: A fetch that has no end by then has none (a server that sends a byte now and then, or an
#: interrupt that came before its thread did): another one begins.
_LONGEST_FETCH_MS: Final = 120_000
#: Hosts whose credentials are kept; more than any cluster's brokers would be a mistake somewhere.
_MOST_KEPT: Final = 1_024


class Login(Protocol):
    """What all connections of a producer share."""

    def mechanism(self, host: str, now: int) -> SaslMechanism | None:
        """A new exchange with the broker ``host``; None when the credential is still on its way.

        Then whoever was given to ``attach`` is woken once it is worth asking again. Raises
        AuthenticationError when there is no credential to be had, ConnectionError when there is
        none now.
        """
        ...

    def attach(self, wakeup: Callable[[], None]) -> None: ...

    def close(self) -> None: ...


class StaticLogin:
    """For mechanisms whose credential stands in the options."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], SaslMechanism]) -> None:
        self._make = make

    def mechanism(self, host: str, now: int) -> SaslMechanism:
        del host, now
        return self._make()

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Nobody ever waits."""

    def close(self) -> None:
        """Nothing to end."""


@dataclass(frozen=True, slots=True)
class Fetched(Generic[T]):
    """A credential and its life, in milliseconds from when it was fetched.

    ``refresh_after_ms``: another one is fetched before it is used again. ``expires_after_ms``: it
    is of no use; None: nobody knows.
    """

    value: T
    refresh_after_ms: int
    expires_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a fetch failed, as text: an exception kept would keep its frames, and their secrets."""

    message: str
    hint: str | None = None
    passes: bool = False

    def error(self) -> AuthenticationError | ConnectionError:
        if self.passes:
            return ConnectionError(self.message)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return AuthenticationError(self.message, hint=self.hint, code=code)


@dataclass(slots=True)
class _Kept(Generic[T]):
    """What is known for one key. Times are the clock's milliseconds."""

    #: When the fetch that is under way began; None when there is none.
    fetching_since: int | None = None
    value: T | None = None
    refresh_at: int = 0
    expires_at: int | None = None
    failure: _Failure | None = None
    failure_until: int = 0
    failures: int = 0


class Fetcher(Generic[T]):
    """Fetches with ``fetch(host)``, on a daemon thread, and makes exchanges with ``make``.

    ``fetch`` may block; it raises KafkaError when trying again is of no use, OSError when it may
    be. With ``per_host`` every broker has its own credential. Several producers may share one.
    ``_lock`` guards what is kept, and who is to be woken.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[str], Fetched[T]],
        make: Callable[[T, str], SaslMechanism],
        clock: Clock,
        *,
        backoff: ExponentialBackoff,
        per_host: bool = False,
    ) -> None:
        self._name = name
        self._fetch = fetch
        self._make = make
        self._clock = clock
        self._backoff = backoff
        self._per_host = per_host
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept[T]] = {}
        self._wakeups: list[Callable[[], None]] = []

    def enlist(self, wakeup: Callable[[], None]) -> None:
        """Call it, from any thread, after each fetch."""
        with self._lock:
            self._wakeups.append(wakeup)

    def dismiss(self, wakeup: Callable[[], None]) -> None:
        with self._lock:
            if wakeup in self._wakeups:
                self._wakeups.remove(wakeup)

    def mechanism(self, host: str, now: int) -> SaslMechanism | None:
        with self._lock:
            key = host if self._per_host else ""
            kept = self._kept.get(key)
            if kept is None:
                if len(self._kept) >= _MOST_KEPT:
                    del self._kept[next(iter(self._kept))]
                kept = self._kept[key] = _Kept()
            value, start = self._look(kept, now)
        if value is not None:
            return self._make(value, host)
        if start:
            threading.Thread(
                target=self._run, args=(kept, host), name=f"kafka-login | {self._name}", daemon=True
            ).start()
        return None

    def _look(self, kept: _Kept[T], now: int) -> tuple[T | None, bool]:
        """What is kept, if it is of use, and whether a fetch must begin. Under the lock."""
        since = kept.fetching_since
        if since is not None and now - since < _LONGEST_FETCH_MS:
            return None, False
        if kept.value is not None and now < kept.refresh_at:
            return kept.value, False
        if kept.failure is not None and now < kept.failure_until:
            usable = kept.expires_at is None or now < kept.expires_at
            if kept.value is not None and usable:
                return kept.value, False
            raise kept.failure.error()
        kept.fetching_since = now
        return None, True

    def _run(self, kept: _Kept[T], host: str) -> None:
        """The fetching thread: whatever happens, those who wait hear of it."""
        fetched: Fetched[T] | None = None
        failure: _Failure | None = None
        try:
            fetched = self._fetch(host)
        except KafkaError as error:
            failure = _Failure(error.message, error.hint)
        except OSError as error:
            failure = _Failure(f"SASL {self._name}: {error.strerror or error}", passes=True)
        except BaseException as error:  # noqa: BLE001 - somebody else's code: SystemExit too
            # By name only: its text may hold anything.
            failure = _Failure(
                f"SASL {self._name}: fetching the credential failed: {type(error).__name__}",
                "it comes from code named in sasl.login.callback.handler.class, or from a library"
                " for the mechanism",
            )
        if failure is not None:
            warn(_log, Kind.NO_NEW_CREDENTIAL, "no new credential: %s", failure.message)
        now = self._clock.now_ms()
        with self._lock:
            kept.fetching_since = None
            kept.failure = failure
            if fetched is not None:
                kept.failures = 0
                kept.value = fetched.value
                kept.refresh_at = now + max(_SHORTEST_USE_MS, fetched.refresh_after_ms)
                life = fetched.expires_after_ms
                kept.expires_at = None if life is None else now + life
            else:
                # At least so long that all who wait get this answer, and not each its own fetch.
                pause = max(_SHORTEST_PAUSE_MS, self._backoff.backoff(kept.failures))
                kept.failure_until = now + pause
                kept.failures += 1
            wakeups = tuple(self._wakeups)
        for wakeup in wakeups:
            wakeup()


class FetchingLogin(Generic[T]):
    """One producer's part in a :class:`Fetcher`."""

    __slots__ = ("_fetcher", "_wakeup")

    def __init__(self, fetcher: Fetcher[T]) -> None:
        self._fetcher = fetcher
        self._wakeup: Callable[[], None] | None = None

    def mechanism(self, host: str, now: int) -> SaslMechanism | None:
        return self._fetcher.mechanism(host, now)

    def attach(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._fetcher.enlist(wakeup)

    def close(self) -> None:
        """A fetch under way ends by itself, and what it brings is kept for others."""
        if self._wakeup is not None:
            self._fetcher.dismiss(self._wakeup)
