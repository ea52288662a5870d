"""Reports as files of the driver: option ``reportPath``.

Owns: how a report gets into a file. Never: which files may be written
(``security/allow_lists.py``).
"""

from __future__ import annotations

from spark_kafka_sink.datasource.report.write_report import WriteReport
from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.security.allow_lists import check_report_path
from spark_kafka_sink.security.local_files import UnusableFileError, append_line


def append_report(path: str, report: WriteReport) -> None:
    """Adds the report to a file, as one line of JSON (JSON Lines): a stream adds a line for every
    micro-batch, and a job that runs every hour keeps its history in one file. ConfigError.
    """
    check_report_path(path)
    try:
        append_line(path, (report.json() + "\n").encode())
    except UnusableFileError as error:
        problem = str(error)
    else:
        return
    raise ConfigError(f"reportPath can't be written: {problem}", kind=Kind.REPORT_NOT_WRITTEN)
