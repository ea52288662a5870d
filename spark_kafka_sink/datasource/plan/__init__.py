"""The plan of a write, its tasks, and its commit or abort.

* ``write_plan``: the plan, which the driver sends to the tasks.
* ``planned_task``: runs a task of the plan in a worker process.
* ``planned_batch``: commits or aborts the batch on the driver.
"""
