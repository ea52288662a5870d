"""The checks before a write: the topic, the cluster, the executors.

Owns: the requests' order and the messages. Never: the options (``config``), the columns
(``datasource/write/schema.py``).

``preflight`` runs before each write, on the driver, with ``topic_checks`` (rights and configs of
the topic). ``cluster_checks`` is ``kprod check``, and ``executor_checks`` does the same from the
machines of the executors; both return ``check_steps``.
"""
