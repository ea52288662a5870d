"""The lowest package: the code that all other packages need.

This package imports no other package of ``spark_kafka_sink``. It opens no connections, and does not
import Spark or Arrow.

* ``errors``, ``error_kinds``, ``documentation`` and ``suggestions``: exceptions, warnings, and
  their hints and links.
* ``clock``, ``backoff`` and ``background``: time, waits and daemon threads.
* ``json_object``, ``described_fields`` and ``counts``: JSON and reports.
* ``topic_name`` and ``time_zones``: checks of names.
* ``process_local``: a value for each process.
* ``version`` and ``format_name``: one constant each.
* The package ``security``: secrets, and the operator's limits for options.
"""
