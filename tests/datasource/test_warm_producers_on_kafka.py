"""What a later task, or another process, need not ask a real Kafka again."""

from __future__ import annotations

import contextlib
import uuid

import psutil

from tests.datasource.rows import frame


def test_producers_stay_warm_between_tasks(spark, kafka, write, topic, consume):
    ports = {int(address.rsplit(":", 1)[1]) for address in kafka.bootstrap.split(",")}

    def connections():
        found = set()
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "python" in process.name():
                    found |= {
                        (process.pid, c.laddr.port)
                        for c in process.net_connections("tcp4")
                        if c.raddr and c.raddr.port in ports and c.status == "ESTABLISHED"
                    }
        return found

    rows = frame(spark, [("v",)], "value string")
    warm = {"kafka.client.id": f"warm-{uuid.uuid4().hex[:6]}"}
    for _ in range(4):  # Spark takes its idle workers in turn: now each has a producer
        write(rows, topic, **warm)
    before = connections()
    assert before
    for _ in range(2):
        write(rows, topic, **warm)
    # One that was opened anew has another port; an idle worker may be gone, with its own.
    after = connections()
    assert after
    assert after <= before
    assert len(consume(topic)) == 6
