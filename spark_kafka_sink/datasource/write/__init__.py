"""The write of a task, and its results.

Owns: ``write_task`` (passes rows to a producer), ``producer_cache`` (warm producers),
``row_adapter`` and ``schema`` (rows and columns), ``write_context`` (the identity of a write),
``commit_message`` (the return value of a task), ``task_progress`` (the log of a running task). The
other files have smaller parts.
"""
