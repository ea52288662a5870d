"""Reads, writes and appends to the files that options name, with limits of time and size.

A file that could block the process or fill its memory is an error: a FIFO, a device, or a file
without an end. No error contains a path, because a user could have entered a secret in place of a
path. ``allow_lists`` has the rules for allowed paths.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import warn

_log = logging.getLogger(__name__)

#: The largest text file, in bytes. Secrets and settings are smaller, and this size harms no worker.
MAX_TEXT: Final = 1 << 20
#: The largest key store or truststore, in bytes. A truststore with all public CAs has 250 KiB.
MAX_STORE: Final = 8 << 20
#: The largest report file, in bytes. A larger file was probably forgotten.
MAX_REPORT: Final = 1 << 30


_CHUNK: Final = 1 << 16
#: The longest time for reading a file. A network disk that needs more time is probably down.
_LONGEST_READ_S: Final = 10.0
#: The longest wait for the lock of a file (other processes need less time to append a line), and
#: the pause before the next attempt.
_LONGEST_LOCK_S: Final = 1.0
_LOCK_PAUSE_S: Final = 0.001

#: The (device, inode) of each file with a warning that was logged. Any thread can write here,
#: without a lock: a second warning does no harm.
_warned: set[tuple[int, int]] = set()


class UnusableFileError(Exception):
    """A file can't be used. The message is the reason, such as "it can't be read: ...". The caller
    puts the message at the end of a sentence.
    """


def read_file(
    path: str, shown: str, limit: int = MAX_TEXT, check: Callable[[str], None] | None = None
) -> bytes:
    """Reads a regular file of at most ``limit`` bytes. Logs a warning if every user of the machine
    can write the file. ``shown`` is the name of the file in this warning.

    Raises UnusableFileError if the file is not a regular file, is larger, or can't be read within
    10 seconds. ``check(path)`` raises an error if a path is not allowed. It is called twice: with
    ``path`` before the file is opened, and with the real path of the open file.
    """
    fd = _opened(path, os.O_RDONLY, check)
    try:
        mode = _checked(fd, path, check)
        content = _content(fd, limit)
        _warn_if_everybody_writes(mode, shown)
    except OSError as error:
        problem = _words(error)
    else:
        return content
    finally:
        os.close(fd)
    # Not within a handler: the context would be an OSError, which holds the path.
    raise UnusableFileError(problem)


def open_to_read(path: str, check: Callable[[str], None] | None = None) -> int:
    """Opens a regular file and returns its file descriptor, which the caller closes.

    Raises UnusableFileError if the file can't be used. :func:`read_file` describes ``check``.
    """
    fd = _opened(path, os.O_RDONLY, check)
    try:
        _checked(fd, path, check)
    except BaseException:
        os.close(fd)
        raise
    return fd


def append_line(path: str, line: bytes, check: Callable[[str], None] | None = None) -> None:
    """Appends ``line``, which ends with a newline, to a regular file. Creates the file if it does
    not exist. Several processes can append to the same file.

    If the last line of the file is incomplete, a newline is written first. Raises UnusableFileError
    if the file can't be used, is a symbolic link, or has more than 1 GiB. :func:`read_file`
    describes ``check``.
    """
    # O_APPEND and a single write call: several processes append. O_NOFOLLOW: another user could
    # have created a symbolic link here.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    fd = _opened(path, flags, check)
    try:
        _wait_for_lock(fd)
        size = _checked(fd, path, check).st_size
        if _is_within_a_line(fd, size):
            line = b"\n" + line
        if size > MAX_REPORT:
            problem = f"it is larger than {MAX_REPORT} bytes"
        elif os.write(fd, line) != len(line):
            problem = "the disk took a part of the line only"
        else:
            return
    except OSError as error:
        problem = _words(error)
    finally:
        _unlock_and_close(fd)
    raise UnusableFileError(problem)


def _wait_for_lock(fd: int) -> None:
    """Locks the file, so that no other process of this package appends to it.

    Returns without the lock if another program holds it for 1 second, or if the file system does
    not support locks. The caller then writes without the lock.
    """
    # With the lock, an incomplete last line comes from a full disk, and not from a process that is
    # still writing.
    deadline = time.monotonic() + _LONGEST_LOCK_S
    while time.monotonic() < deadline:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_PAUSE_S)
        except OSError:
            return
        else:
            return


def _unlock_and_close(fd: int) -> None:
    """Unlocks and closes the file. Closing alone is not enough: a child process that was forked
    meanwhile has a copy of the file descriptor, which would keep the lock.
    """
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _is_within_a_line(fd: int, size: int) -> bool:
    """True if the last line of the file is incomplete, for example after the disk was full.

    ``size`` is the size of the file when the caller read it. Later bytes are ignored: another
    process could be appending them now.
    """
    if size == 0:
        return False
    try:
        # ``fd`` is open only for appending, so the file is opened again to read it.
        with Path(f"/proc/self/fd/{fd}").open("rb") as file:
            file.seek(size - 1)
            return file.read(1) not in (b"", b"\n")
    except OSError:
        return False


def write_new_file(
    directory: str, name: str, content: bytes, check: Callable[[str], None] | None = None
) -> None:
    """Writes the file ``name`` into ``directory``, completely or not at all. Creates the directory
    if it does not exist.

    An existing file is replaced. On a file system that can't rename files, like some mounts of
    object stores, an existing file is an error. If the process is killed during the write, a file
    with a name ``.<name>.<random>.tmp`` can stay.

    Raises UnusableFileError if the file can't be written. ``check`` is called with the real path of
    the open directory, and raises an error if new files are not allowed in this directory.
    """
    _refuse_uri(directory)
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if check is not None:
                check(_path_of(fd, directory))
            # Another user can replace a symbolic link in the path after the check. A path below the
            # open directory still leads to the checked directory.
            opened = Path(f"/proc/self/fd/{fd}")
            _write_or_rename(opened if opened.is_dir() else Path(directory), name, content)
        finally:
            os.close(fd)
    except OSError as error:
        problem = _words(error)
    except ValueError:
        problem = "it is no name that a file can have"
    else:
        return
    raise UnusableFileError(problem)


def refuse_unusable(path: str, *, directories: bool = False) -> None:
    """Raises UnusableFileError if a program that opens ``path`` would hang or fail.

    Two kinds of paths are an error: a URI, and a file that is not a regular file, such as a FIFO.
    If ``directories`` is True, a directory is accepted. A file that does not exist is not an error
    here.
    """
    _refuse_uri(path)
    try:
        mode = Path(path).stat().st_mode
    except (OSError, ValueError):
        return  # who opens it says so
    if not (stat.S_ISREG(mode) or (directories and stat.S_ISDIR(mode))):
        raise UnusableFileError(_kind(mode))


def _refuse_uri(path: str) -> None:
    """Raises UnusableFileError if ``path`` is a URI. Without this check, ``s3://bucket/x`` would be
    used as a file in a directory named ``s3:``.
    """
    if uri := re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path):
        message = f"it is a URI ({uri.group()}...), and a local path is needed"
        raise UnusableFileError(message)


def _opened(path: str, flags: int, check: Callable[[str], None] | None) -> int:
    """Opens a file and returns its file descriptor. Raises UnusableFileError if the file can't be
    opened. If ``check`` raises an error, raises this error.
    """
    if check is not None:
        check(path)
    _refuse_uri(path)
    try:
        # Without O_NONBLOCK, opening a FIFO would block until another process opens it, too.
        # Nothing in a report is secret; the umask may take more.
        return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        problem = _words(error)
    except ValueError:
        problem = "it is no name that a file can have"
    raise UnusableFileError(problem)


def _checked(fd: int, path: str, check: Callable[[str], None] | None) -> os.stat_result:
    """Checks that the open file ``fd`` is a regular file, and that ``check`` allows its real path.
    Returns the status of the file. Raises UnusableFileError if the file is not a regular file.
    """
    mode = os.fstat(fd)
    if not stat.S_ISREG(mode.st_mode):
        raise UnusableFileError(_kind(mode.st_mode))
    if check is not None:
        # The second check of the path: another user can have replaced a symbolic link in it after
        # the first.
        check(_path_of(fd, path))
    return mode


def _path_of(fd: int, path: str) -> str:
    """The real path of the open file ``fd``. Only Linux provides the real path of an open file. On
    other systems, this function returns the path to which ``path`` resolves now.
    """
    try:
        # A file that was replaced meanwhile is "deleted".
        return str(Path(f"/proc/self/fd/{fd}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return os.path.realpath(path)


def _write_or_rename(folder: Path, name: str, content: bytes) -> None:
    # No fixed name: a file that a killed process has left would have it, too.
    final, temporary = folder / name, folder / f".{name}.{os.urandom(4).hex()}.tmp"
    _write_whole(temporary, content)
    try:
        temporary.rename(final)
    except OSError:
        # Some mounts of object stores can't rename. There a file becomes visible only when it is
        # closed, so the final name can be written directly.
        temporary.unlink()
        _write_whole(final, content)


def _write_whole(path: Path, content: bytes) -> None:
    """Writes a new file. If writing or closing fails, removes the file and raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.fdopen(os.open(path, flags, 0o644), "wb", buffering=0)
    try:
        with file:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def decoded(content: bytes) -> str:
    """Decodes the content of a file as UTF-8. If the content is not valid UTF-8, decodes it as ISO
    8859-1, as Java does.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return content.decode("iso-8859-1")


def _content(fd: int, limit: int) -> bytes:
    begun = time.monotonic()
    chunks: list[bytes] = []
    size = 0
    while chunk := os.read(fd, min(_CHUNK, limit + 1 - size)):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            message = f"it is larger than {limit} bytes"
            raise UnusableFileError(message)
        if time.monotonic() - begun > _LONGEST_READ_S:
            message = f"it was not read within {_LONGEST_READ_S:.0f} s"
            raise UnusableFileError(message)
    return b"".join(chunks)


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "Is a directory"
    return f"it is {'a FIFO' if stat.S_ISFIFO(mode) else 'a device or socket'}, and no regular file"


def _words(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _warn_if_everybody_writes(mode: os.stat_result, shown: str) -> None:
    it = (mode.st_dev, mode.st_ino)
    if not mode.st_mode & stat.S_IWOTH or it in _warned:
        return
    _warned.add(it)
    warn(
        _log,
        Kind.WEAK_SECURITY,
        "%s: every user of this machine may write that file (mode %04o), and so choose the trusted "
        "certificates and the place where secrets go; chmod o-w",
        shown,
        stat.S_IMODE(mode.st_mode),
    )
