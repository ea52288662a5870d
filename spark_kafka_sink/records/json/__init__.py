"""Named columns as JSON, whole columns at a time, as Spark's ``to_json`` writes them.

Owns: the text. Never: which columns (``records/column_plan.py``), a record.

``json_text`` puts objects, arrays and strings together; ``json_numbers``, ``json_times`` and
``base64_text`` (binary) write the columns whose text Arrow's casts do not have.
"""
