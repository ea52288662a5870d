"""Help and version answer at once: what they do not import. (0.1 to 0.3 s, half of it Typer's.)"""

from __future__ import annotations

import errno
import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spark_kafka_sink import cli
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.cli.app import app
from tests.cli.commands import commands_of
from tests.monitoring.reports import report
from tests.programs import run_python

ROOT = Path(__file__).parents[2]
#: Whoever imports another one of ours, or one of these, takes longer than help may.
OURS = {
    "",
    ".base",
    ".base.version",
    ".base.documentation",
    ".base.security",
    ".base.security.operators_variables",
    ".cli",
    ".cli.app",
    ".cli.arguments",
    ".cli.txn",
    ".cli.txn.txn_commands",
}
HEAVY = {"numpy", "pyarrow", "ssl", "pyspark", "lz4"}
#: Runs kprod, then tells on standard error what is loaded.
PROGRAM = """
import sys
from spark_kafka_sink.cli import main
try:
    main()
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["-h"], ["txn", "-h"], *([*c, "--help"] for c in commands_of(app))],
    ids=" ".join,
)
def test_help_and_version_import_no_work(arguments: list[str]) -> None:
    run = run_python("-c", PROGRAM, *arguments)
    assert run.stdout
    loaded = set(run.stderr.split())
    assert "typer" in loaded
    ours = {name.removeprefix("spark_kafka_sink") for name in loaded if name.startswith("spark_")}
    assert ours <= OURS
    assert not loaded & HEAVY


def test_the_help_names_the_usual_commit_log() -> None:
    """As text, because to import the constant would take longer than all of help."""
    (option,) = (p for p in commands_of(app)["txn", "list"].params if p.name == "log_topic")
    assert f" or {COMMIT_LOG_TOPIC} if " in option.help


def test_names_are_completed_at_once_too() -> None:
    """What the script of ``--install-completion`` asks of kprod at each tab."""
    asked = {"_KPROD_COMPLETE": "complete_bash", "COMP_WORDS": "kprod txn bl", "COMP_CWORD": "2"}
    run = run_python("-c", PROGRAM, environment=asked)
    assert run.stdout.split() == ["blockers"], run.stderr
    assert not set(run.stderr.split()) & HEAVY


@pytest.fixture
def kprod(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., tuple[object, str, str]]]:
    """``kprod`` in this process: its exit code, and what it printed."""

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["kprod", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return (ended.value.code, *capsys.readouterr())

    # It quiets connections for its whole process.
    network = logging.getLogger("spark_kafka_sink.network")
    level = network.level
    yield run
    network.setLevel(level)


def test_what_is_not_installed_is_named_and_explain_needs_none(
    kprod: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message of a task names ``kprod explain``, and a worker may have no extra."""
    monkeypatch.setattr(cli, "_NEEDED", ("typer", "no_such_package"))
    install = "kprod: no_such_package not installed: pip install 'spark-kafka-sink[cli]'\n"
    assert kprod("options") == (1, "", install)
    code, out, err = kprod("explain", "KP0301")
    assert (code, err) == (0, "")
    assert "KP0301" in out


def test_an_unknown_code_is_an_error_without_the_extra_too(
    kprod: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_NEEDED", ("no_such_package",))
    code, out, err = kprod("explain", "KP9999")
    assert (code, out) == (2, "")
    assert err.startswith("kprod explain: ")
    assert "KP9999" in err


class BrokenPipe(io.StringIO):
    """Standard output behind which something else than a full disk fails."""

    def flush(self) -> None:
        raise OSError(errno.EIO, "Input/output error")


def test_only_a_full_disk_is_called_one(
    kprod: Callable[..., tuple[object, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kprod("--version") == (0, f"{__version__}\n", "")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", BrokenPipe())
        with pytest.raises(OSError, match="Input/output error"):
            kprod("--version")


@pytest.mark.parametrize("command", [["options"], ["options", "--json"]], ids=["table", "json"])
def test_a_full_disk_behind_the_output_is_one_line(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "spark_kafka_sink.cli", *command],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    assert run.stderr == "kprod: the output can't be written: No space left on device\n"
    assert run.returncode == 1


def test_a_name_that_the_locale_can_not_write_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "reports.jsonl"
    path.write_text(json.dumps(report(3, queryName="commandes 漢")) + "\n")
    latin = {"PYTHONIOENCODING": "latin-1", "COLUMNS": "100"}
    run = run_python("-m", "spark_kafka_sink.cli", "report", "show", path, environment=latin)
    assert r"commandes \u6f22" in run.stdout
