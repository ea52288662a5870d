"""One task's write, and its account.

Owns: ``write_task`` (rows to a producer), ``producer_cache`` (warm producers), ``row_adapter`` and
``schema`` (rows and columns), ``write_context`` (which write this is), ``commit_message``
(what a task returns) and ``task_progress`` (what it reports while it runs).
"""
