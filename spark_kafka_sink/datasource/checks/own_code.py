"""Imports the user's classes and functions that options name, to check that they exist.

Owns: the list of the names that the driver must import, and the list for each executor. Never: the
import itself (``base/security/import_paths.py``), or a call of a user's function.
"""

from __future__ import annotations

from spark_kafka_sink.base.security.import_paths import is_import_path
from spark_kafka_sink.config.sink_config import SinkConfig


def check_own_code(config: SinkConfig, *, on_driver: bool) -> int:
    """Imports the classes and functions that options name, and returns their number. Creates no
    instance of a class. Raises ConfigError for a wrong name.

    With ``on_driver``, also imports the listeners that only the driver calls.
    """
    from spark_kafka_sink.datasource.report.destinations import listener
    from spark_kafka_sink.datasource.write.task_progress import progress_listener

    reports = config.report_listeners if on_driver else ()
    for path in reports:
        listener(path)
    for path in config.progress_listeners:
        progress_listener(path)
    interceptors = config.producer.interceptor_classes
    if interceptors:
        from spark_kafka_sink.producer.interceptors import Interceptors

        Interceptors.check(interceptors)
    own = config.producer.partitioner_class
    named = len(reports) + len(config.progress_listeners) + len(interceptors)
    if own is None or not is_import_path(own):
        return named
    from spark_kafka_sink.records.partitioning.own_partitioner import check

    check(own)
    return named + 1
