"""Who we are to a broker, before the first request (Java's ``Authenticator``).

Owns: the :class:`Authenticator` protocol, and the one of PLAINTEXT and SSL, which has nothing to
say. Never: sockets (a transport layer is given). SASL stands behind the same protocol.
"""

from __future__ import annotations

from typing import Protocol


class Authenticator(Protocol):
    """One connection's authentication. The channel calls until :attr:`complete`."""

    @property
    def complete(self) -> bool: ...

    def authenticate(self) -> None:
        """Go on as far as the socket allows. Raises AuthenticationError."""
        ...

    @property
    def wants_write(self) -> bool:
        """Waits for a writable socket (else for a readable one)."""
        ...

    def close(self) -> None: ...


class PlaintextAuthenticator:
    """Complete at once: the broker takes anyone, or knows us by our certificate."""

    __slots__ = ()

    complete = True
    wants_write = False

    def authenticate(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""
