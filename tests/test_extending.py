"""docs/design/extending.md adds one of each kind by a diff: applied to a copy, each of them works.

The copy has all of the diffs; one process runs all uses in it, and one writes the docs.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from spark_kafka_sink.local_kafka.installation import prepare
from tests.programs import run_python

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "design" / "extending.md").read_text()
#: Heading to text.
SECTIONS = dict(re.findall(r"(?ms)^## (.+?)\n(.*?)(?=^## |\Z)", PAGE))
#: What is added, as the generated pages show it.
SHOWN = {
    "options.md": ("bzip2", "`kafka.buffer.chunk.bytes`", "`reportTag`", "`murmur3_consistent`"),
    "errors.md": ("KP0399", "UNSTABLE_OFFSET_COMMIT"),
    "metrics.md": ("wakeup-rate", "wakeup-total"),
    "reports.md": ("`arrowBatches`",),
}
_COPIED = (
    "spark_kafka_sink",
    "tests",
    "tools",
    "docs",
    "conf",
    "pyproject.toml",
    "README.md",
    "bench",
)

#: Runs each text of a JSON object on standard input; prints what failed, by name.
_RUNNER = """
import json, sys, traceback
failures = {}
for name, text in json.load(sys.stdin).items():
    try:
        exec(compile(text, name, "exec"), {"__name__": name})
    except BaseException:
        failures[name] = traceback.format_exc()
print(json.dumps(failures))
"""


def blocks(section: str, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```$", SECTIONS[section])


def extended(root: Path) -> dict[Path, str]:
    """The files of ``root`` that the page's diffs change, as they are with all of them."""
    texts: dict[Path, str] = {}
    for section in SECTIONS:
        for diff in blocks(section, "diff"):
            apply(diff, root, texts)
    return texts


def apply(diff: str, root: Path, texts: dict[Path, str]) -> None:
    """Every hunk must be found once, by its lines; what stands behind ``@@`` is for readers."""
    for change in re.split(r"(?m)^--- ", diff)[1:]:
        old, new, *lines = change.splitlines()
        path = root / new.removeprefix("+++ b/")
        assert old in ("/dev/null", f"a/{new.removeprefix('+++ b/')}"), old
        before = "" if old == "/dev/null" else texts.get(path) or path.read_text()
        text = f"\n{before}"
        for hunk in re.split(r"(?m)^@@.*\n?", "\n".join(lines))[1:]:
            marked = [line or " " for line in hunk.splitlines()]
            before = "".join(f"{line[1:]}\n" for line in marked if line[0] in " -")
            after = "".join(f"{line[1:]}\n" for line in marked if line[0] in " +")
            assert text.count(f"\n{before}") == 1, f"{path.name} has this not once:\n{before}"
            text = text.replace(f"\n{before}", f"\n{after}")
        texts[path] = text[1:]


def run(root: Path, *arguments: str, stdin: str = "") -> str:
    environment = {"PYTHONPATH": str(root)}
    return run_python(*arguments, cwd=root, environment=environment, stdin=stdin).stdout


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with everything that the page adds."""
    root = tmp_path_factory.mktemp("extended")
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, root / name, ignore=ignored)
        else:
            shutil.copy(source, root / name)
    for path, text in extended(root).items():
        path.write_text(text)
    # Kafka's own definitions, of the added API too.
    (jar,) = (path for path in prepare().distribution.jars if path.name.startswith("kafka-clients"))
    run(root, "tools/generate_messages.py", "--from-jar", str(jar))
    return root


def failures(root: Path) -> dict[str, str]:
    """The tracebacks of the uses that fail with the package in ``root``, by heading."""
    uses = {section: "".join(blocks(section, "python")) for section in SECTIONS}
    assert all(uses.values())
    found: dict[str, str] = json.loads(run(root, "-c", _RUNNER, stdin=json.dumps(uses)))
    return found


def test_every_diff_fits() -> None:
    assert extended(ROOT)


@pytest.mark.long
@pytest.mark.broker  # needs Kafka's jars
def test_what_the_diffs_add_can_be_used(copy: Path) -> None:
    assert failures(copy) == {}


def test_no_use_works_without_its_diff() -> None:
    assert list(failures(ROOT)) == list(SECTIONS)


@pytest.mark.long
@pytest.mark.broker  # needs Kafka's jars
def test_the_generated_pages_show_what_was_added(copy: Path) -> None:
    run(copy, "tools/generate_docs.py")
    for page, names in SHOWN.items():
        text, before = ((at / "docs" / page).read_text() for at in (copy, ROOT))
        assert [name for name in names if name not in text] == []
        assert [name for name in names if name in before] == []


def test_every_row_of_contributing_is_shown() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().split("## I want to add ...")[1]
    rows = re.findall(r"(?m)^\| ([^|(]+?) (?:\([^|]*\) )?\| ", table.split("\n## ")[0])
    assert [row.lower() for row in rows if row != "what"] == [name.lower() for name in SECTIONS]
