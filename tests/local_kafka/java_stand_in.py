"""A program in the place of ``java``, for tests of what local_kafka does with one.

It tells its version, formats a storage, and as a broker or a schema registry answers just what
local_kafka probes. What a test wants otherwise is among the server's properties, as for a real one,
or in the file ``answers.json`` beside them, which is read at each request.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from types import FrameType


def properties(path: str) -> dict[str, str]:
    lines = Path(path).read_text().splitlines()
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name: value for name, _, value in pairs}


def format_storage(cluster_id: str, path: str, options: list[str]) -> None:
    if "nonsense=1" in options:
        sys.exit("Unsupported feature: nonsense")
    given = properties(path)
    data = Path(given["log.dirs"])
    data.mkdir(parents=True)
    (data / "meta.properties").write_text(
        f"cluster.id={cluster_id}\nnode.id={given['node.id']}\ndirectory.id=first\n"
    )
    (data / "bootstrap.checkpoint").write_text("features")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def numbers(values: list[int]) -> bytes:
    return struct.pack(f">{len(values) + 1}i", len(values), *values)


def metadata(brokers: list[int], replicas: list[int], in_sync: list[int]) -> bytes:
    """Version 1, with a topic of one partition."""
    nodes = b"".join(
        struct.pack(">i", node) + text("127.0.0.1") + struct.pack(">ih", 9092, -1)
        for node in brokers
    )
    partition = struct.pack(">hii", 0, 0, replicas[0]) + numbers(replicas) + numbers(in_sync)
    topics = struct.pack(">ih", 1, 0) + text("orders") + b"\0" + struct.pack(">i", 1) + partition
    return struct.pack(">i", len(brokers)) + nodes + struct.pack(">i", 1) + topics


def serve_kafka(path: str, archive: str | None) -> None:
    given = properties(path)
    print("starting", flush=True)
    if given["num.io.threads"] == "0" or (archive and "NO_ARCHIVE" in os.environ):
        sys.exit("Invalid value 0 for configuration num.io.threads")

    def end(_signal: int, _frame: FrameType | None) -> None:
        if archive:
            Path(archive).write_text("classes")
        sys.exit(143)

    signal.signal(signal.SIGTERM, end)
    voters = [int(one.partition("@")[0]) for one in given["controller.quorum.voters"].split(",")]
    addresses = dict(one.split("://") for one in given["listeners"].split(","))
    probed = [int(addresses[name].rpartition(":")[2]) for name in ("PLAINTEXT", "INTERNAL")]
    listeners = [socket.create_server(("127.0.0.1", port)) for port in probed]
    answers = Path(path).with_name("answers.json")
    while True:
        connection, _ = select.select(listeners, [], [])[0][0].accept()
        with connection:
            wanted = {"brokers": voters, "replicas": voters, "in_sync": voters, "answers": True}
            wanted |= json.loads(answers.read_text()) if answers.exists() else {}
            request = connection.recv(4096)
            if not wanted.pop("answers") or len(request) < 12:
                continue
            (api,) = struct.unpack_from(">h", request, 4)
            body = metadata(**wanted) if api == 3 else struct.pack(">hi", 0, 0)
            connection.sendall(struct.pack(">ii", len(body) + 4, 1) + body)
            if api == 3 and "seconds.to.live" in given:
                threading.Timer(float(given["seconds.to.live"]), os._exit, [1]).start()


def serve_registry(port: int) -> None:
    print("starting", flush=True)
    if "NO_REGISTRY" in os.environ:
        sys.exit("Port already bound")
    listener = socket.create_server(("127.0.0.1", port))
    while True:
        connection, _ = listener.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n[]")


def option(name: str) -> str | None:
    return next((one.removeprefix(name) for one in sys.argv if one.startswith(name)), None)


def main() -> None:
    if "-version" in sys.argv:
        print('openjdk version "17.0.1" 2021-10-19', file=sys.stderr)
    elif "kafka.tools.StorageTool" in sys.argv:
        at = sys.argv.index("format")
        format_storage(sys.argv[at + 2], sys.argv[at + 4], sys.argv[at + 5 :])
    elif "kafka.Kafka" in sys.argv:
        serve_kafka(sys.argv[-1], option("-XX:ArchiveClassesAtExit="))
    elif port := option("-Dquarkus.http.port="):
        serve_registry(int(port))
    else:
        sys.exit("nothing is fetched here")  # as PySpark's Ivy


if __name__ == "__main__":
    main()
