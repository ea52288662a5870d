"""The login: gives each connection the credential for its authentication (Java's ``LoginManager``).

* :class:`Login`: the interface.
* :class:`StaticLogin`: for a credential that is an option, such as a password.
* :class:`FetchingLogin`: for a credential that must be fetched, such as an OAuth token. A
  :class:`Fetcher` fetches the credential on a separate thread, and caches it. The functions that
  fetch are in ``token_sources.py``, ``aws_msk_iam.py`` and ``sasl_gssapi.py``.

No timer renews a credential. Each authentication requests the credential from the login, which then
fetches a new one if necessary (:class:`FetchedCredential`). While a connection waits for the
credential, the network thread continues with other connections.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, TypeVar

from spark_kafka_sink.base.background import run_aside
from spark_kafka_sink.base.backoff import ExponentialBackoff
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import AuthenticationError, ErrorCode, KafkaError, warn
from spark_kafka_sink.network.auth.sasl_mechanism import SaslMechanism

_log = logging.getLogger(__name__)

T = TypeVar("T")

#: A fetched credential is used for at least this time in ms, even if its lifetime is shorter. So
#: all waiting connections can use it.
_SHORTEST_USE_MS: Final = 1_000
_SHORTEST_PAUSE_MS: Final = 50
#: If a fetch takes longer than this, the login starts another fetch. The reasons may be a server
#: that sends a byte now and then, or an interrupt before the start of the thread.
_LONGEST_FETCH_MS: Final = 120_000
#: A credential is used while a new one is fetched, if it is valid for at least this time in ms. It
#: must still be valid when the broker checks it, and the broker's clock may be ahead of ours: after
#: a refusal the producer fails.
_SAFE_LEFT_MS: Final = 60_000
#: The maximum number of hosts whose credentials are cached. It is higher than the number of brokers
#: of any cluster.
_MOST_CACHED: Final = 1_024


class Login(ABC):
    """The source of credentials for all connections of a producer. A subclass whose credential is
    always available implements only :meth:`mechanism`.
    """

    __slots__ = ()

    @abstractmethod
    def mechanism(self, host: str, now: int) -> SaslMechanism | None:
        """Creates the SASL mechanism for an authentication at the broker ``host``. Returns None
        while the credential is being fetched.

        After the result None, the caller waits until the login calls the function that
        :meth:`attach` has set. Then the caller calls this method again.

        Raises ConnectionError after a failure that may be temporary. Raises AuthenticationError
        after any other failure.
        """

    def attach(self, wakeup: Callable[[], None]) -> None:  # noqa: B027 - not for all
        """Sets the function that the login calls after it has fetched a credential. The login may
        call ``wakeup`` on any thread.
        """

    def close(self) -> None:  # noqa: B027 - as above
        """Removes the function that :meth:`attach` has set, so that the login does not call it any
        more.
        """


class StaticLogin(Login):
    """The login for mechanisms whose credential is in the options, such as a password."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], SaslMechanism]) -> None:
        self._make = make

    def mechanism(self, host: str, now: int) -> SaslMechanism:
        del host, now
        return self._make()


@dataclass(frozen=True, slots=True)
class FetchedCredential(Generic[T]):
    """A credential with its lifetime in milliseconds, counted from the time when it was fetched.

    * ``refresh_after_ms``: the first authentication after this time starts the fetch of a new
      credential. A time below one second counts as one second.
    * ``expires_after_ms``: after this time, the credential is not valid any more. None if this time
      is unknown.

    During the fetch of a new credential, this credential is used if it is valid for at least
    another minute. If it is not, or if ``expires_after_ms`` is None, the authentications wait for
    the fetch.
    """

    value: T
    refresh_after_ms: int
    expires_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a fetch has failed, as a text. ``passes`` is True if the failure may be
    temporary.

    The exception itself is not kept, because its stack frames may contain secrets.
    """

    message: str
    hint: str | None = None
    passes: bool = False

    def error(self) -> AuthenticationError | ConnectionError:
        if self.passes:
            return ConnectionError(self.message)
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        return AuthenticationError(self.message, hint=self.hint, code=code)


@dataclass(slots=True)
class _Cached(Generic[T]):
    """The cache entry for one broker, or for all brokers: the credential, and the failure of the
    last fetch if that fetch failed. Times are monotonic milliseconds.
    """

    #: The time at which the running fetch began. None if no fetch is running.
    fetching_since: int | None = None
    value: T | None = None
    refresh_at: int = 0
    expires_at: int | None = None
    failure: _Failure | None = None
    failure_until: int = 0
    failures: int = 0


class Fetcher(Generic[T]):
    """Fetches credentials on a daemon thread, and caches them. Several producers may share a
    fetcher.

    * ``fetch(host)`` fetches a credential, and may block. It raises OSError if a retry may succeed,
      and KafkaError otherwise.
    * ``make(credential, host)`` creates the SASL mechanism.
    * ``per_host``: true if each broker has its own credential.

    ``_lock`` guards the cache and the wakeups.
    """

    def __init__(
        self,
        name: str,
        fetch: Callable[[str], FetchedCredential[T]],
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
        self._cached: dict[str, _Cached[T]] = {}
        self._wakeups: list[Callable[[], None]] = []

    def add_wakeup(self, wakeup: Callable[[], None]) -> None:
        """Adds a function that the fetcher calls after each fetch, on the thread of the fetch."""
        with self._lock:
            self._wakeups.append(wakeup)

    def remove_wakeup(self, wakeup: Callable[[], None]) -> None:
        with self._lock:
            if wakeup in self._wakeups:
                self._wakeups.remove(wakeup)

    def mechanism(self, host: str, now: int) -> SaslMechanism | None:
        with self._lock:
            key = host if self._per_host else ""
            cached = self._cached.get(key)
            if cached is None:
                if len(self._cached) >= _MOST_CACHED:
                    del self._cached[next(iter(self._cached))]
                cached = self._cached[key] = _Cached()
            value, start = self._cached_value(cached, now)
        if start:
            run_aside(partial(self._run, cached, host), f"kafka-login | {self._name}")
        return None if value is None else self._make(value, host)

    def _cached_value(self, cached: _Cached[T], now: int) -> tuple[T | None, bool]:
        """Returns the cached credential, and true if the caller must start a fetch. The credential
        is None if the caller must wait for a fetch. Called under the lock.

        Raises the error of the last fetch if this fetch failed a short time ago, and no earlier
        credential is still valid.
        """
        since = cached.fetching_since
        fetching = since is not None and now - since < _LONGEST_FETCH_MS
        if not fetching:
            if cached.value is not None and now < cached.refresh_at:
                return cached.value, False
            if cached.failure is not None and now < cached.failure_until:
                usable = cached.expires_at is None or now < cached.expires_at
                if cached.value is not None and usable:
                    return cached.value, False
                raise cached.failure.error()
            cached.fetching_since = now
        lasts = cached.expires_at is not None and now + _SAFE_LEFT_MS <= cached.expires_at
        return cached.value if lasts else None, not fetching

    def _run(self, cached: _Cached[T], host: str) -> None:
        """Fetches a credential. Stores the credential, or the failure of the fetch, in ``cached``.
        Then calls the wakeups. Runs on a separate thread.
        """
        fetched: FetchedCredential[T] | None = None
        failure: _Failure | None = None
        try:
            fetched = self._fetch(host)
        except KafkaError as error:
            failure = _Failure(error.message, error.hint)
        except OSError as error:
            failure = _Failure(f"SASL {self._name}: {error.strerror or error}", passes=True)
        except BaseException as error:  # noqa: BLE001 - third-party code: SystemExit too
            # By name only: its text may hold anything.
            failure = _Failure(
                f"SASL {self._name}: fetching the credential failed: {type(error).__name__}",
                "it comes from code named in kafka.sasl.login.callback.handler.class, or from a"
                " library for the mechanism",
            )
        if failure is not None:
            warn(_log, Kind.NO_NEW_CREDENTIAL, "no new credential: %s", failure.message)
        now = self._clock.now_ms()
        with self._lock:
            cached.fetching_since = None
            cached.failure = failure
            if fetched is not None:
                cached.failures = 0
                cached.value = fetched.value
                cached.refresh_at = now + max(_SHORTEST_USE_MS, fetched.refresh_after_ms)
                life = fetched.expires_after_ms
                cached.expires_at = None if life is None else now + life
            else:
                # Long enough that all waiters get this result, instead of a fetch each.
                pause = max(_SHORTEST_PAUSE_MS, self._backoff.backoff(cached.failures))
                cached.failure_until = now + pause
                cached.failures += 1
            wakeups = tuple(self._wakeups)
        for wakeup in wakeups:
            wakeup()


class FetchingLogin(Login, Generic[T]):
    """The login of one producer. It gets its credentials from a :class:`Fetcher`, which several
    producers may share.
    """

    __slots__ = ("_fetcher", "_wakeup")

    def __init__(self, fetcher: Fetcher[T]) -> None:
        self._fetcher = fetcher
        self._wakeup: Callable[[], None] | None = None

    def mechanism(self, host: str, now: int) -> SaslMechanism | None:
        return self._fetcher.mechanism(host, now)

    def attach(self, wakeup: Callable[[], None]) -> None:
        self._wakeup = wakeup
        self._fetcher.add_wakeup(wakeup)

    def close(self) -> None:
        """Removes the function that :meth:`attach` has set, so that the fetcher no longer calls
        this function. A running fetch continues, because other producers can use the credential.
        """
        if self._wakeup is not None:
            self._fetcher.remove_wakeup(self._wakeup)
