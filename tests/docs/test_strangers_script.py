"""README's lines as a stranger types them: an empty folder, the wheel, nothing of the checkout.

The lines are read out of README.md. The wheel goes into a fresh environment, whose dependencies are
this environment's: nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.real_kafka import RealKafka

pytestmark = [pytest.mark.long, pytest.mark.broker, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
#: What Spark itself says while it starts.
_OF_SPARK = re.compile(
    r"WARNING: (?:Using incubator modules|package \S+ not in)|Using Spark's default log4j profile"
    r"|Setting default log level to|To adjust logging level use|\s*\[Stage \d+:"
    r"|\S+ \S+ WARN (?:Utils|NativeCodeLoader|SparkConf|ResourceUtils)"
)


def changed_job() -> str:
    """README's diff, after the change."""
    (diff,) = re.findall(r"^```diff\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return "\n".join(line[1:] for line in diff.splitlines() if not line.startswith("-"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Empty except for dist/, as after ``make wheel``."""
    made = tmp_path_factory.mktemp("stranger")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made / "dist")
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    return made


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a shell with a fresh environment, in which no index is asked."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=True, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    # The packages alone: .pth files in there, the checkout's among them, are not read.
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "others.pth").write_text("\n".join(others))
    ours = {
        "PYTHONPATH",
        "PYSPARK_PYTHON",
        "PYSPARK_DRIVER_PYTHON",
        "SPARK_CONF_DIR",
        "VIRTUAL_ENV",
    }
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "PIP_NO_INDEX": "1", "COLUMNS": "120", "NO_COLOR": "1"}


def shell(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(folder: Path, environment: dict[str, str]) -> str:
    """README's command of the demo, after its command that installs the wheel."""
    blocks = re.findall(r"^```bash\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if "dist/*.whl" in block)
    _, install, demo = block.splitlines()
    done = shell(f"{install} --quiet", folder, environment)
    assert done.returncode == 0, done.stderr
    return demo


@pytest.mark.timeout(700)
def test_the_demo_from_the_wheel_loses_and_doubles_nothing(
    installed: str, folder: Path, environment: dict[str, str]
) -> None:
    """The driver is killed. Nothing is on stderr, which a newcomer would take for a failure."""
    done = shell(f"{installed} --rows 40000", folder, environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "kill -9 of the driver and its workers after micro-batch" in done.stdout
    assert done.stdout.rstrip().endswith("Nothing lost, nothing doubled.")
    rows = [[cell.strip() for cell in line.split("│")[1:6]] for line in done.stdout.splitlines()]
    assert [row for row in rows if row[:1] in (["batch"], ["stream"])] == [
        ["batch", "40,000", "40,000", "0", "0"],
        ["stream", "40,000", "40,000", "0", "0"],
    ]
    assert [path.name for path in folder.iterdir()] == ["dist"]


@pytest.mark.timeout(700)
@pytest.mark.usefixtures("installed")
def test_the_changed_job_writes_and_logs_one_line(
    folder: Path, environment: dict[str, str], kafka: RealKafka, consume
) -> None:
    topic = kafka.unique_topic("stranger")
    job = changed_job().replace("host:9092", kafka.bootstrap).replace('"orders"', f'"{topic}"')
    assert kafka.bootstrap in job
    assert topic in job
    script = [
        "from pyspark.sql import SparkSession",
        'spark = SparkSession.builder.master("local[2]").getOrCreate()',
        'df = spark.range(100).selectExpr("cast(id as string) as value")',
        job,
        "import spark_kafka_sink",
        "print(spark_kafka_sink.__file__)",
        "spark.stop()",
    ]
    own = folder / "job"
    own.mkdir()
    (own / "job.py").write_text("\n".join(script))
    done = shell("python job.py", own, environment)
    assert done.returncode == 0, done.stderr
    assert str(ROOT) not in done.stdout
    lines = re.split(r"[\r\n]+", done.stderr)
    ours = [line for line in lines if line.strip() and not _OF_SPARK.match(line)]
    (shown,) = re.findall(r"^kprod wrote (.*)$", README, re.MULTILINE)
    assert len(ours) == 1, done.stderr
    assert "kprod wrote rows=100 " in ours[0]
    assert set(re.findall(r"(\w+)=", shown)) <= set(re.findall(r"(\w+)=", ours[0]))
    found = consume(topic, bootstrap=kafka.bootstrap, isolation="read_committed")
    assert len(found.values) == 100
