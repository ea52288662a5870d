"""The checks before a write: the topic, the cluster, the executors.

``preflight`` runs on the driver before each write. It calls ``topic_checks``, which checks rights
and configs of the topic. ``cluster_checks`` has the steps of ``kprod check``. ``executor_checks``
runs these steps on the executors. A step's result is a ``Step`` (``check_steps``). The package
``config`` checks the options, and ``datasource/write/schema.py`` checks the columns.
"""
