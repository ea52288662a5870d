"""Files that options name: none of them blocks, fills memory, or is written by everybody unsaid."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import stat
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import AuthenticationError, ConfigError
from spark_kafka_sink.base.security import local_files
from spark_kafka_sink.base.security.allow_lists import PATHS, NotAllowedError, check_file
from spark_kafka_sink.base.security.local_files import MAX_STORE, MAX_TEXT, UnusableFileError
from spark_kafka_sink.base.security.password import Password
from spark_kafka_sink.base.security.secret_references import resolve
from spark_kafka_sink.config.logins.sasl_settings import KerberosSettings
from spark_kafka_sink.config.named_columns import ColumnFormat, SubjectStrategy
from spark_kafka_sink.config.schema_options import PayloadOptions
from spark_kafka_sink.datasource.schemas.payload_schemas import given_schema
from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.network.auth.sasl_gssapi import gssapi_contexts
from spark_kafka_sink.network.tls.key_stores import read_key_store, read_trust_store
from tests.security.files_of_options import CONFIG_FILE, LINE, READERS, publish_to

KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"
CHAIN = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["a FIFO", "a device", "larger than", "Is a directory"])
def test_what_is_no_small_file_is_refused_and_not_waited_for(reader, kind, tmp_path):
    path = tmp_path / "it"
    if kind == "a FIFO":
        os.mkfifo(path)
    elif kind == "larger than":
        with path.open("wb") as file:
            file.truncate(300 << 20)  # of zeros, which take no room on the disk
    else:
        path = "/dev/zero" if kind == "a device" else tmp_path
    with pytest.raises((ConfigError, AuthenticationError), match=kind) as raised:
        READERS[reader](path)
    assert "can't be read" in str(raised.value)


def test_a_fifo_that_somebody_writes_to_is_refused_as_well(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(UnusableFileError, match="FIFO"):
            local_files.read_file(str(path), "it")
        with pytest.raises(UnusableFileError, match="FIFO"):
            local_files.append_line(str(path), b"line\n")
    finally:
        os.close(writer)


def test_a_file_that_is_read_too_slowly_is_given_up(tmp_path, monkeypatch):
    """A disk of the network: each read takes four seconds of this clock."""
    seconds = iter(range(0, 1000, 4))
    monkeypatch.setattr(local_files.time, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(local_files, "_CHUNK", 1)
    path = tmp_path / "slow"
    path.write_text("abc")
    with pytest.raises(UnusableFileError, match="not read within 10 s"):
        local_files.read_file(str(path), "it")
    path.write_text("a")
    assert local_files.read_file(str(path), "it") == b"a"


@pytest.mark.parametrize("limit", [1, 70_000, MAX_TEXT, MAX_STORE])
def test_a_file_may_be_as_large_as_its_limit_and_no_larger(limit, tmp_path):
    path = tmp_path / "it"
    path.write_bytes(b"x" * limit)
    assert len(local_files.read_file(str(path), "it", limit)) == limit
    path.write_bytes(b"x" * (limit + 1))
    with pytest.raises(UnusableFileError, match=f"larger than {limit} bytes"):
        local_files.read_file(str(path), "it", limit)


def test_a_line_after_one_that_was_cut_off_is_whole(tmp_path):
    """A disk that is full takes a part of a line, as a file at its limit does."""
    path = tmp_path / "reports"
    local_files.append_line(str(path), b"first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9, before[1]))
    try:
        with pytest.raises(UnusableFileError, match="a part of the line only"):
            local_files.append_line(str(path), b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for _ in range(2):
        local_files.append_line(str(path), b"third\n")
    assert path.read_bytes() == b"first\nsec\nthird\nthird\n"


def test_a_line_that_another_writes_was_not_cut_off(tmp_path):
    """It is half there for a moment, as one is that a full disk took a part of."""
    path = tmp_path / "reports"
    line = b"x" * 70_000 + b"\n"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: local_files.append_line(str(path), line), range(400)))
    assert path.read_bytes() == line * 400


def test_a_new_file_that_two_begin_has_no_empty_line(tmp_path):
    """It is empty when one asks for its size, and has the other one's line a moment later."""
    path = tmp_path / "r.jsonl"

    def written_by_another(_: str) -> None:
        if path.exists() and path.stat().st_size == 0:
            path.write_bytes(b"first\n")

    local_files.append_line(str(path), b"second\n", written_by_another)
    assert path.read_text() == "first\nsecond\n"


def test_a_forked_process_keeps_no_lock(tmp_path, monkeypatch):
    """It has all descriptors, and a lock is that of the open file."""
    path = tmp_path / "reports"
    path.write_bytes(b"before\n")
    children = []

    def fork(fd: int, data: bytes) -> int:
        os.set_inheritable(fd, True)
        children.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False))
        return written(fd, data)

    written = os.write
    monkeypatch.setattr(local_files.os, "write", fork)
    local_files.append_line(str(path), b"line\n")
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        children[0].communicate()


def test_a_lock_of_another_program_does_not_keep_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(local_files, "_LONGEST_LOCK_S", 0.01)
    path = tmp_path / "reports"
    with path.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        local_files.append_line(str(path), b"line\n")
    assert path.read_bytes() == b"line\n"


@pytest.mark.parametrize(
    "path", ["a\0b", "/nowhere/canary9", "x" * 5000, "\ud800", "/etc/shadow/x"]
)
def test_no_error_of_a_file_holds_its_path_not_even_behind_it(path):
    for use in (
        lambda: local_files.read_file(path, "it"),
        lambda: local_files.append_line(path, b"l\n"),
    ):
        with pytest.raises(UnusableFileError) as raised:
            use()
        error: BaseException | None = raised.value
        while error is not None:
            assert path not in f"{error!r} {error}"
            assert not getattr(error, "filename", None)
            error = error.__cause__ or error.__context__


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_everybody_may_write_is_one_warning(reader, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(local_files, "_warned", set())  # a file's number may come again
    path = tmp_path / "it"
    path.write_text("k=v\n")
    for mode, warnings in ((0o644, 0), (0o660, 0), (0o666, 1), (0o666, 1)):
        path.chmod(mode)
        told = ""
        try:
            READERS[reader](path)
        except (ConfigError, AuthenticationError) as error:
            told = str(error)  # it is no store, and no token
        assert "can't be read" not in told
        said = [r.getMessage() for r in caplog.records if "every user" in r.getMessage()]
        assert len(said) == warnings
    assert str(path) in said[0]
    assert "mode 0666" in said[0]


def test_a_location_by_reference_is_named_by_it_in_the_warning(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(local_files, "_warned", set())
    path = tmp_path / "canary9"
    path.write_text(CHAIN)
    path.chmod(0o666)
    monkeypatch.setenv("WHERE", str(path))
    assert read_trust_store(resolve({"ssl.truststore.location": "${env:WHERE}"}))
    assert "${env:WHERE}: every user" in caplog.text
    assert "canary9" not in caplog.text


@pytest.mark.parametrize("reader", [name for name in READERS if name != LINE])
@pytest.mark.parametrize("uri", ["s3://bucket/x", "file:///nowhere/x", "dbfs:/x", "https://h/x"])
def test_a_uri_is_not_read_as_a_path(reader, uri, tmp_path, monkeypatch):
    """A directory ``s3:`` of the working directory would be somebody's to make."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / uri.rpartition("/")[0]).mkdir(parents=True)
    (tmp_path / uri).write_text(CHAIN)
    if reader == CONFIG_FILE and uri.startswith("file:"):
        return  # it is read: /nowhere/x, which is not there
    with pytest.raises((ConfigError, AuthenticationError)) as raised:
        READERS[reader](uri)
    assert re.search("is not a local path|it is a URI|No such file|has a ':'", str(raised.value))


def test_a_keytab_is_a_regular_file(tmp_path):
    """The library would wait for a FIFO's other end."""
    os.mkfifo(tmp_path / "fifo")
    for path, why in ((f"FILE:{tmp_path}/fifo", "it is a FIFO"), ("s3://b/k", "it is a URI")):
        with pytest.raises(ConfigError, match=f"keyTab={path} can't be read: {why}"):
            gssapi_contexts(KerberosSettings("kafka", path, "me"))


def test_a_schemas_file_is_looked_at_again_when_it_is_open(tmp_path, limit, monkeypatch):
    """Its link leads to an allowed file until it is opened."""
    (tmp_path / "allowed").mkdir()
    (tmp_path / "other").write_text('"string"')
    link = tmp_path / "allowed" / "link"
    link.symlink_to(link.with_name("file"))
    limit(PATHS, str(link.parent))
    real = os.open

    def replaced(path, *args, **options):
        if path == str(link):
            link.unlink()
            link.symlink_to(tmp_path / "other")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", replaced)
    payload = PayloadOptions("value", ColumnFormat.AVRO, str(link), None, SubjectStrategy.TOPIC)
    with pytest.raises(NotAllowedError, match="valueSchema"):
        given_schema(payload)
    assert link.readlink() == tmp_path / "other"


def test_a_link_that_is_replaced_after_the_check_is_refused(tmp_path, limit):
    """Checked while it leads to an allowed file, and opened when it leads to another."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    for folder in (allowed, other):
        folder.mkdir()
        (folder / "file").write_text("k=v\n")
    link = allowed / "link"
    limit(PATHS, str(allowed))
    checked = []

    def check(path):
        check_file(path, "it")
        checked.append(path)
        link.unlink()
        link.symlink_to(other)

    def replaced(use):
        link.unlink(missing_ok=True)
        link.symlink_to(allowed)
        checked.clear()
        with pytest.raises(NotAllowedError):
            use()
        assert checked == [str(link / "file")], "the first check allows it"

    replaced(lambda: local_files.read_file(str(link / "file"), "it", check=check))
    replaced(lambda: local_files.append_line(str(link / "file"), b"line\n", check))
    assert (other / "file").read_text() == "k=v\n"


def test_a_directory_replaced_after_the_check_gets_no_report(tmp_path):
    """Checked while it is the allowed one, and a link to another when the file is made."""
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    other.mkdir()
    checked = []

    def check(path):
        checked.append(path)
        allowed.rename(tmp_path / "moved")
        allowed.symlink_to(other)

    local_files.write_new_file(str(allowed), "report.json", b"{}", check)
    assert checked == [str(allowed)]
    assert list(other.iterdir()) == []
    assert (tmp_path / "moved" / "report.json").read_bytes() == b"{}"


def test_a_file_is_written_after_a_process_was_killed(tmp_path, monkeypatch):
    """Its temporary file is left, and also the one of a version with a fixed name for it."""

    def killed(*_):
        raise KeyboardInterrupt

    (tmp_path / ".report.json.tmp").write_bytes(b"left")
    with monkeypatch.context() as context:
        context.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            local_files.write_new_file(str(tmp_path), "report.json", b"first")
    for content in (b"second", b"third"):
        local_files.write_new_file(str(tmp_path), "report.json", content)
        assert (tmp_path / "report.json").read_bytes() == content
    temporary = [one for one in tmp_path.iterdir() if one.name != "report.json"]
    assert [one.read_bytes() for one in temporary if "report.json.tmp" not in one.name] == [
        b"first"
    ]
    assert all(one.match(".report.json*.tmp") for one in temporary)


def test_a_hard_link_is_the_file_itself(tmp_path, limit):
    """conda, uv and ostree make CA bundles hard links; and who may make one of a file of others
    may read and write that file already (fs.protected_hardlinks).
    """
    (tmp_path / "store").write_text(CHAIN)
    (tmp_path / "allowed").mkdir()
    (tmp_path / "allowed" / "ca.pem").hardlink_to(tmp_path / "store")
    limit(PATHS, f"{tmp_path}/allowed")
    assert read_trust_store({"ssl.truststore.location": f"{tmp_path}/allowed/ca.pem"})


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["s3://bucket/reports/", "file:///tmp/r", "dbfs:/r", "FIFO"])
def test_a_report_path_that_is_no_local_file_is_refused(path, tmp_path, monkeypatch):
    """When the write is planned; else ``s3://bucket`` is a directory ``s3:`` on the driver."""
    monkeypatch.chdir(tmp_path)
    if path == "FIFO":
        os.mkfifo(path)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "preflight": "off"}
    source = KprodDataSource(CaseInsensitiveDict(options | {"reportPath": path}))
    with pytest.raises(ConfigError, match=f"reportPath={path} can't be written: it is a"):
        source.writer(StructType([StructField("value", StringType())]), overwrite=False)
    publish_to(path)
    assert [made.name for made in tmp_path.iterdir() if made.is_dir()] == []


def test_reports_of_two_processes_share_a_file(tmp_path):
    path = tmp_path / "report"
    for _ in range(2):
        publish_to(str(path))
    told = [json.loads(line)["outcome"] for line in path.read_text().splitlines()]
    assert told == ["aborted", "aborted"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o022 == 0


@pytest.mark.parametrize("kind", ["FIFO", "symbolic link", "device", "null", "huge"])
def test_a_report_goes_to_regular_files_only_and_commits_go_on(kind, tmp_path, caplog):
    """The rows are in Kafka: it is a warning, and nothing waits."""
    path, victim = tmp_path / "report", tmp_path / "victim"
    victim.write_text("precious\n")
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "symbolic link":
        path.symlink_to(victim)
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(local_files.MAX_REPORT + 1)
    shown = {"device": "/dev/full", "null": "a\0b"}.get(kind, str(path))
    publishing = threading.Thread(target=publish_to, args=(shown,), daemon=True)
    publishing.start()
    publishing.join(60)
    assert not publishing.is_alive(), "a commit would hang"
    assert victim.read_text() == "precious\n"
    assert "reportPath can't be written" in caplog.text


# --- PEM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN CERTIFICATE-----" * 40_000,
        "-----BEGIN A-----x" * 60_000,
        "".join(f"-----BEGIN A{i}-----x" for i in range(50_000)),
        "-----BEGIN " * 90_000,
        "-----" * 200_000,
    ],
)
@pytest.mark.timeout(60)  # quadratic, each took minutes; linear, all take a second
def test_a_megabyte_of_unclosed_brackets_is_read_at_once(text):
    options = {"ssl.keystore.key": Password(text), "ssl.keystore.certificate.chain": Password(text)}
    with pytest.raises(ConfigError, match="holds no private key"):
        read_key_store(options)


def test_blocks_are_found_between_and_behind_others():
    text = f"comment\n{CHAIN}-----BEGIN X-----\nno end\n{KEY}rest\n{CHAIN}"
    options = {"ssl.keystore.key": Password(text), "ssl.keystore.certificate.chain": Password(text)}
    found = read_key_store(options)
    assert found.private_key == KEY
    assert found.certificates == CHAIN * 2
    one_line = Password(text.replace("\n", " "))
    found = read_key_store(
        {"ssl.keystore.key": one_line, "ssl.keystore.certificate.chain": one_line}
    )
    assert found.private_key == KEY
    assert found.certificates == CHAIN * 2


def test_a_schema_s_file_may_begin_with_a_byte_order_mark(tmp_path):
    file = tmp_path / "order.avsc"
    file.write_bytes(b'\xef\xbb\xbf"long"')
    payload = PayloadOptions("value", ColumnFormat.AVRO, str(file), None, SubjectStrategy.TOPIC)
    assert given_schema(payload) == '"long"'
