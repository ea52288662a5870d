"""A PostgreSQL of our own with logical decoding: ``initdb`` and ``postgres`` must be on PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from spark_kafka_sink.local_kafka import ports
from tests.waiting import wait_for


@contextmanager
def postgres(folder: Path) -> Iterator[Postgres]:
    """A server whose data are in ``folder``. It refuses to run as root, who has another user for
    it: ``postgres`` of a package, or ``nobody``.
    """
    data, user = folder / "data", _user()
    data.mkdir()
    if user:
        shutil.chown(data, user=user["user"])
    settings = {
        "wal_level": "logical", "listen_addresses": "127.0.0.1", "fsync": "off",
        "unix_socket_directories": "",
    }  # fmt: skip
    begin: dict[str, Any] = {"cwd": data, "stdin": subprocess.DEVNULL, **user}
    with (folder / "postgres.log").open("w") as log:
        output = {"stdout": log, "stderr": log}
        initdb = ["initdb", "-D", ".", "-A", "trust", "-U", "postgres", "--no-sync"]
        subprocess.run([*initdb, "--locale=C", "-E", "UTF8"], check=True, **output, **begin)
        held = ports.reserve()
        held.release()
        given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        server = subprocess.Popen(
            ["postgres", "-D", ".", "-p", str(held.port), *given], **output, **begin
        )
        try:
            made = Postgres(held.port)
            wait_for(lambda: made.is_ready or server.poll() is not None, 60, "a PostgreSQL")
            assert server.poll() is None, (folder / "postgres.log").read_text()[-2000:]
            yield made
        finally:
            server.terminate()
            server.wait(60)


class Postgres:
    def __init__(self, port: int) -> None:
        self.port = port

    @property
    def is_ready(self) -> bool:
        return self._psql("SELECT 1").returncode == 0

    def run(self, *statements: str) -> None:
        """In one transaction."""
        text = "BEGIN;\n" + ";\n".join(statements) + ";\nCOMMIT;\n"
        done = self._psql(text)
        assert done.returncode == 0, done.stderr + text

    def _psql(self, text: str) -> subprocess.CompletedProcess[str]:
        command = ["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres"]
        return subprocess.run(
            [*command, "-X", "-q", "-v", "ON_ERROR_STOP=1"],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )


def _user() -> Mapping[str, Any]:
    if os.geteuid() != 0:
        return {}
    import pwd

    names = {one.pw_name for one in pwd.getpwall()}
    return {"user": "postgres" if "postgres" in names else "nobody", "extra_groups": []}
