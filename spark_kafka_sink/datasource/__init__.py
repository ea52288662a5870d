"""The Spark side: ``format("kprod")``. The only room that imports pyspark.

Owns: ``source`` (the data source), ``write_plan`` (what the driver passes to the tasks),
``preflight`` and ``topic_checks`` (one error before any task), ``foreach_batch``,
``registration`` with the patches of Spark's classes (``default_mode``, ``continuous_trigger``,
``spark_patches``). ``write`` is what a task does, ``exactly_once`` what a transaction adds.
"""
