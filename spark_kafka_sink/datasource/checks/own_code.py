"""Imports the user's classes and functions whose import paths are in options, to check that they
exist.

``base/security/import_paths.py`` imports a name. No function of the user is called here.
"""

from __future__ import annotations

from spark_kafka_sink.base.security.import_paths import is_import_path
from spark_kafka_sink.config.sink_config import SinkConfig


def check_own_code(config: SinkConfig, *, on_driver: bool) -> int:
    """Imports the user's classes and functions whose import paths are in options: progress
    listeners, interceptors and a partitioner. Returns their number.

    With ``on_driver``, also imports the report listeners, which only the driver calls. Creates no
    instance of a class. Raises ConfigError for a name that can't be imported.
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
