"""A network thread that never runs."""

from __future__ import annotations


class NoThread:
    """The result of ``start_thread``, if a test runs the sender itself or not at all."""

    def is_alive(self) -> bool:
        return False

    def join(self, timeout: float | None = None) -> None:
        pass
