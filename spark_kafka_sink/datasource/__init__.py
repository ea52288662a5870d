"""The Spark side: ``format("kprod")``. The only room that imports pyspark.

Owns: ``source`` (the data source), ``write_plan`` (what the driver passes to the tasks),
``foreach_batch``, ``registration`` with the patches of Spark's classes (``default_mode``,
``continuous_trigger``, ``spark_patches``). ``checks`` runs before any task, on the driver.
``write`` is one task, ``exactly_once`` what a transaction adds, ``report`` and ``monitoring`` what
users see of a write.
"""
