"""Creates the TLS context for each new connection, and reads certificate files again if they were
renewed.

A Spark stream may run for months, while its certificates are valid for only a few days.
:class:`RenewedContext` remembers the last valid context. ``ssl_context.py`` and ``key_stores.py``
read the files. Open connections keep their certificates.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, safe_text, warn
from spark_kafka_sink.base.security.allow_lists import check_file
from spark_kafka_sink.base.security.local_files import MAX_STORE, UnusableFileError, read_file
from spark_kafka_sink.base.security.password import text_of
from spark_kafka_sink.network.tls.ssl_context import ssl_context

_log = logging.getLogger(__name__)

_LOCATIONS: Final = ("ssl.truststore.location", "ssl.keystore.location")
_BEGIN, _END = b"-----BEGIN ", b"-----END "

#: Device, inode, size and time of change of a file. The tuple changes if the file is replaced or
#: written. None if the file does not exist.
_State = tuple[int, int, int, int] | None


class RenewedContext:
    """A callable that returns the TLS context for a new connection. Only one thread may call it."""

    __slots__ = ("_context", "_files", "_options", "_seen")

    def __init__(self, options: Mapping[str, object]) -> None:
        """Reads the files of the ``ssl.`` options. Raises ConfigError as :func:`ssl_context`
        does.
        """
        self._options = options
        self._files = {
            name: text_of(options[name]) for name in _LOCATIONS if options.get(name) is not None
        }
        # Before the files are read: a change between the two is seen later.
        self._seen = self._states()
        self._context = ssl_context(options)

    def __call__(self) -> ssl.SSLContext:
        """Returns the TLS context. If a file has changed, first reads the files again.

        If a changed file is not valid, returns the previous context, and logs one warning for this
        change.
        """
        states = self._states()
        if states != self._seen:
            self._seen = states
            try:
                context = ssl_context(self._options)
                self._refuse_halves()
            except ConfigError as error:
                warn(
                    _log,
                    Kind.KEY_STORE,
                    "%s; new connections use the certificates that were read before",
                    error.message,
                )
            else:
                self._context = context
                _log.info("%s: read again for new connections", " and ".join(self._files))
        return self._context

    def _states(self) -> tuple[_State, ...]:
        return tuple(map(_state, self._files.values()))

    def _refuse_halves(self) -> None:
        """Raises ConfigError if a PEM file ends in the middle of a block. Probably another program
        is still writing the file.

        Other incomplete files cause an error when they are used: a PKCS12 store can't be opened,
        and a key can't be used without its certificate.
        """
        for name, path in self._files.items():
            source = f"{name}={safe_text(path)}"
            try:
                content = read_file(path, source, MAX_STORE, lambda it: check_file(it, source))  # noqa: B023 - called now
            except UnusableFileError as error:
                raise ConfigError(f"{source} can't be read: {error}") from None
            if content.count(_BEGIN) != content.count(_END):
                raise ConfigError(f"{source} ends within a block of PEM")


def _state(path: str) -> _State:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
