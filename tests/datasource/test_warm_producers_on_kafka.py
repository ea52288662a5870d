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
    # Spark takes its idle workers in turn: after a few writes each has a producer. It ends a worker
    # that was idle for a minute, and begins another one: on a slow machine that takes more writes.
    written, as_before = 0, 0
    while as_before < 2 and written < 20:
        before = connections()
        write(rows, topic, **warm)
        written += 1
        # One that was opened anew has another port; an idle worker may be gone, with its own.
        after = connections()
        as_before = as_before + 1 if after and after <= before else 0
    assert as_before == 2, "each write has opened a connection"
    assert len(consume(topic)) == written
