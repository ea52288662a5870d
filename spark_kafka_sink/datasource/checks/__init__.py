"""The checks of the topic, the cluster and the executors.

* ``preflight``: the checks on the driver before each write.
* ``topic_checks``: rights and configs of a topic.
* ``cluster_checks``: the steps of ``kprod check``.
* ``executor_checks``: runs these steps on the executors.
* ``check_steps``: the class of a step's result.
"""
