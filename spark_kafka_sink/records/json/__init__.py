"""Encodes named columns as JSON, whole columns at a time, as Spark's ``to_json`` does.

Owns: the text of the JSON. Never: the choice of columns (``records/column_plan.py``), a Kafka
record.

``json_text`` builds objects, arrays and strings. ``json_numbers``, ``json_times``,
``json_intervals``, ``variant_text`` and ``base64_text`` (binary) build the text of columns that
Arrow's casts do not support. ``plain_text`` is text without quotes, such as the keys of maps.
"""
