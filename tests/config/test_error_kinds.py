"""Every error has one code that stays, an entry on the page, and an address that leads there."""

import ast
import functools
import importlib
import logging
import pickle
import re
import tomllib
from pathlib import Path

import pytest
import typer.testing

from spark_kafka_sink.base import documentation, errors
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, ErrorCode, KafkaError, KafkaTimeoutError
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.explanation import entries, explanation, list_of_codes, sections
from tests.programs import run_python

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "spark_kafka_sink"
PAGE = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
CODES = [*(kind.kp_code for kind in Kind), *(code.kp_code for code in ErrorCode)]
CLASSES = sorted(
    (
        value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, KafkaError) and not name.startswith("_")
    ),
    key=lambda cls: cls.__name__,
)


@functools.cache
def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def kinds_named_in(path):
    """Members of our Kind that a module's code names (another module has a Kind of its own)."""
    tree = parsed(path)
    imported = any(
        isinstance(node, ast.ImportFrom) and node.module == "spark_kafka_sink.base.error_kinds"
        for node in ast.walk(tree)
    )
    return {
        node.attr
        for node in ast.walk(tree)
        if imported
        and isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Kind"
    }


def test_users_find_each_exception_where_the_docs_say():
    """Tracebacks name spark_kafka_sink.errors, and pickles of a worker are loaded from there."""
    face = importlib.import_module("spark_kafka_sink.errors")
    public = set(face.__all__)
    assert public == {"ErrorCode", *(cls.__name__ for cls in CLASSES)}
    for cls in CLASSES:
        assert getattr(face, cls.__name__) is cls
        assert cls.__module__ == "spark_kafka_sink.errors"


def test_a_code_is_given_once():
    assert len(CODES) == len(set(CODES))
    assert all(re.fullmatch(r"KP[0-9]{4}", code) for code in CODES)


def test_no_kind_is_unused():
    modules = [path for path in PACKAGE.rglob("*.py") if path.name != "error_kinds.py"]
    assert set().union(*map(kinds_named_in, modules)) == set(Kind.__members__)


def test_a_code_of_the_runbook_exists_and_has_its_heading():
    runbook = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", runbook, re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    assert set(documentation.RUNBOOK) <= set(CODES)
    assert set(documentation.RUNBOOK.values()) <= anchors
    for code, anchor in documentation.RUNBOOK.items():
        section = PAGE.partition(f'<a id="{code.lower()}">')[2].partition('<a id="')[0]
        assert f"](runbook.md#{anchor})" in section


@pytest.fixture
def site(monkeypatch):
    """As in a release that has one."""
    monkeypatch.setattr(documentation, "SITE", "https://kprod.example/en")
    return f"https://kprod.example/en/{documentation._edition(documentation.__version__)}"


def test_an_error_with_a_section_of_the_runbook_names_it(site):
    text = str(KafkaTimeoutError("no answer", hint="ask again"))
    assert text.endswith(f"see {site}/errors/KP0305/ and {site}/runbook/#a-job-hangs")
    assert "runbook" not in str(ConfigError("wrong"))


def test_without_a_site_no_message_has_an_address():
    """An address that leads nowhere, or to another's page, is worse than none."""
    assert documentation.SITE == ""
    for code in CODES:
        assert documentation.where_to_read(code) == f"kprod explain {code}"
        if code != ErrorCode.NONE.kp_code:
            assert "://" not in explanation(code)
    assert ConfigError("wrong").url is None


def test_every_code_has_one_entry_on_the_page():
    assert set(entries()) == set(Kind)
    assert sorted(re.findall(r'<a id="(kp[0-9]{4})"></a>KP', PAGE)) == sorted(map(str.lower, CODES))


def test_the_page_shows_what_users_meet_and_no_more():
    assert "`_" not in PAGE
    assert not re.search(r"^#.*%[sd]", PAGE, re.MULTILINE)


def calls_in(path, *methods):
    """Every call of a method of these names, as its tree and its source."""
    return [
        (node, ast.unparse(node))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in methods
    ]


def test_every_warning_of_the_log_has_a_code():
    """``warn`` gives one; an error's own line has one already."""
    for path in PACKAGE.rglob("*.py"):
        if "local_kafka" in path.parts or path == PACKAGE / "base" / "errors.py":
            continue
        for _, source in calls_in(path, "warning", "error", "critical", "exception", "warn", "log"):
            logs = re.match(r"_?log(ger|ging)?\.", source) is not None
            assert not logs or "error.one_line()" in source, (path, source)


def test_every_warning_of_a_configuration_has_a_code():
    found = 0
    for path in (PACKAGE / "config").rglob("*.py"):
        for node, source in calls_in(path, "append"):
            if "warnings.append" in source:
                assert re.match(r"coded\(|.*\.no_effect\(", ast.unparse(node.args[0])), source
                found += 1
    assert found >= 3


def test_a_warnings_line_has_the_form_of_an_errors(caplog):
    log = logging.getLogger("spark_kafka_sink.tests")
    errors.warn(log, Kind.USER_CODE, "%d%% of %s", 3, "100%s")
    (record,) = caplog.records
    assert record.getMessage() == "[KP0701] 3% of 100%s (see kprod explain KP0701)"
    assert (record.levelname, record.module) == ("WARNING", "test_error_kinds")
    caplog.clear()
    log.setLevel(logging.CRITICAL)
    errors.warn(log, Kind.USER_CODE, "nobody reads it")
    assert not caplog.records


def test_an_error_has_its_code_first_and_where_to_read_last():
    first, second = str(ConfigError("no such thing", hint="set it")).split("\n")
    assert first == "[KP0100] no such thing"
    assert second == "  hint: set it; see kprod explain KP0100"
    first, second = str(ErrorCode.MESSAGE_TOO_LARGE.error("t-0")).split("\n")
    assert first.startswith("[KP1010] t-0: MESSAGE_TOO_LARGE (10): ")
    assert second.endswith("; see kprod explain KP1010")
    alone = KafkaError("gone")
    assert str(alone).splitlines()[1] == "  see kprod explain KP0001"
    assert "\n" not in alone.one_line()
    assert alone.one_line() == "[KP0001] gone (see kprod explain KP0001)"


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_kind_survives_the_way_from_a_worker_to_the_driver(cls):
    plain = cls("what", hint="why")
    narrower = cls("what", kind=Kind.NO_BROKER)
    for error in (plain, narrower):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is cls
        assert str(again) == str(error)
        assert again.kind is error.kind
    assert narrower.kind is Kind.NO_BROKER


def test_a_brokers_answer_has_its_codes_kind_and_a_timeout_none():
    assert ErrorCode.REQUEST_TIMED_OUT.error("t").kind is ErrorCode.REQUEST_TIMED_OUT
    ours = KafkaTimeoutError("slow", code=ErrorCode.REQUEST_TIMED_OUT)
    assert ours.kind is Kind.TIMEOUT
    refused = errors.AuthorizationError("no", code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert refused.kind is ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("version", "edition"),
    [("0.1.0", "0.1.0"), ("1.12", "1.12"), ("0.2.0.dev3", "latest"), ("0.2.0+local", "latest")],
)
def test_an_address_is_of_the_version_that_runs(version, edition, site, monkeypatch):
    monkeypatch.setattr(documentation, "__version__", version)
    found = documentation.error_url("KP0301")
    assert found == f"{documentation.SITE}/{edition}/errors/KP0301/"
    assert KafkaError("x", kind=Kind.NO_BROKER).url == found


def test_a_link_in_a_terminal_is_a_page_or_its_address(monkeypatch):
    monkeypatch.setattr(documentation, "SITE", "")
    assert "See every option (the page 'options' of the documentation)." in explanation("KP0101")
    monkeypatch.setattr(documentation, "SITE", "https://kprod.example/en")
    assert "See every option (https://kprod.example/en/" in explanation("KP0101")


def texts_of(path):
    """The strings of a module that may be shown: all but docstrings."""
    tree = parsed(path)
    documented = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documented
    ]


def test_no_message_points_to_a_file_that_a_wheel_does_not_have():
    for path in PACKAGE.rglob("*.py"):
        if "local_kafka" in path.parts:
            continue
        for text in texts_of(path):
            assert not re.search(r"docs/|conf/clients", text), (path, text)


@pytest.mark.parametrize("code", [kind.kp_code for kind in Kind])
def test_explain_says_what_is_on_the_page_without_its_links(code):
    result = typer.testing.CliRunner().invoke(app, ["explain", code])
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{code}: {entries()[Kind(code)].title}\n")
    assert ".md" not in result.stdout


def test_explain_ends_with_the_address_where_there_is_one(site):
    assert explanation("KP0305").endswith(f"{documentation.where_to_read('KP0305')}\n")
    assert f"({site}/options/)" in explanation("KP0100")


def test_explain_needs_no_extra():
    """It is what every message names, and a cluster's image has no Typer."""
    program = "import sys; sys.modules.update(typer=None, rich=None); sys.argv[0] = 'kprod'\n"
    program += "import importlib.util as u; found = u.find_spec\n"
    program += "u.find_spec = lambda name: None if name in ('typer', 'rich') else found(name)\n"
    program += "import runpy; runpy.run_module('spark_kafka_sink.cli', run_name='__main__')"
    run = run_python("-c", program, "explain", "SASL_AUTHENTICATION_FAILED")
    assert run.stdout == explanation("KP1058")
    assert run.stderr == ""


@pytest.mark.parametrize("asked", ["KP1010", "[kp1010] t-0: ...", "message_too_large"])
def test_explain_knows_brokers_answers_by_code_and_name(asked):
    result = typer.testing.CliRunner().invoke(app, ["explain", asked])
    assert result.stdout.startswith("KP1010: MESSAGE_TOO_LARGE (10)\n")
    assert "max.message.bytes" in result.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["wrong", "password"], "KP0401"),
        (["connection refused"], "KP0301"),
        (["topic", "does", "not", "exist"], "KP0302"),
        (["dublicates"], "KP0503"),
        (["message too large"], "KP1010"),
    ],
)
def test_explain_finds_codes_by_everyday_words(words, code):
    result = typer.testing.CliRunner().invoke(app, ["explain", *words])
    assert result.exit_code == 0
    assert code in [line.split("  ")[0] for line in result.stdout.splitlines()][:3]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("missing topic", "KP0302"),
        ("topic not found", "KP0302"),
        ("permission", "KP1029"),
        ("wrong password", "KP0401"),
        ("PARTIAL", "KP0611"),
        ("duplicates", "runbook  Rows are there twice"),
        ("nothing arrives", "runbook  Nothing arrives in the topic"),
        ("slow", "runbook  A job is slow"),
        ("the job is slow since monday", "runbook  A job is slow"),
        ("connection refused", "KP0301"),
        ("cannot connect", "KP0301"),
        ("timeout", "KP0305"),
        ("fenced", "KP0612"),
        ("consumer lag", "runbook  A consumer stands still"),
        ("dead letters", "KP0235"),
        ("out of memory", "KP0505"),
        ("message too large", "KP1010"),
        ("schema registry down", "KP0221"),
        ("not enough replicas", "KP1019"),
        ("no module named", "KP0141"),
    ],
)
def test_explain_answers_first_what_people_type(words, first):
    result = typer.testing.CliRunner().invoke(app, ["explain", *words.split()])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(first), result.stdout


def test_words_lead_to_codes_and_sections_that_exist():
    runbook = (ROOT / "docs" / "runbook.md").read_text("utf-8")
    titles = re.findall(r"^## (.+)$", runbook, re.MULTILINE)
    assert sections() <= {title.lower().replace(" ", "-") for title in titles}
    shown = list_of_codes()
    table = tomllib.loads((PACKAGE / "cli" / "words.toml").read_text("utf-8"))
    assert [code for code in table["codes"] if f"{code}  " not in shown] == []


def test_a_pasted_message_needs_no_quotation_marks():
    pasted = "[KP0301] 127.0.0.1:9092: nobody; see KP9999"
    result = typer.testing.CliRunner().invoke(app, ["explain", *pasted.split()])
    assert result.stdout == explanation("KP0301")


@pytest.mark.parametrize(("typed", "near"), [("KP0303x", "KP0303"), ("KP301", "KP0301")])
def test_explain_of_no_code_names_the_nearest(typed, near):
    result = typer.testing.CliRunner(env={"COLUMNS": "200"}).invoke(app, ["explain", typed])
    assert result.exit_code == 2
    assert f"is it {near}? 'kprod explain' lists all" in result.stderr


@pytest.mark.parametrize("typed", ["KP9999", "KP0800", "nonsense"])
def test_a_code_of_no_area_is_near_to_none(typed):
    """KP9999 was taken for KP1999, which is about something else."""
    with pytest.raises(LookupError, match=f"^there is no '{typed}'; 'kprod explain' lists all$"):
        explanation(typed)


def test_explain_without_a_code_lists_all_of_them():
    result = typer.testing.CliRunner().invoke(app, ["explain"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "KP0301  No broker answered" in lines
    assert "KP1058  SASL_AUTHENTICATION_FAILED (58)" in lines
    assert {line[:6] for line in lines} == set(CODES) - {ErrorCode.NONE.kp_code}
