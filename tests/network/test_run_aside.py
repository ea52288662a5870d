"""Calls on threads of their own, when the process takes no new threads."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.base.background import run_aside


def _refuse_threads(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError(reason)

    monkeypatch.setattr(threading.Thread, "start", start)


def test_while_the_interpreter_exits_a_call_blocks(monkeypatch: pytest.MonkeyPatch):
    """Python 3.12 and newer, while a queue is sent at the exit."""
    _refuse_threads(monkeypatch, "can't create new thread at interpreter shutdown")
    called: list[str] = []
    run_aside(lambda: called.append(threading.current_thread().name), "aside")
    assert called == [threading.current_thread().name]


def test_a_process_without_threads_to_spare_is_told(monkeypatch: pytest.MonkeyPatch):
    _refuse_threads(monkeypatch, "can't start new thread")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        run_aside(lambda: None, "aside")
