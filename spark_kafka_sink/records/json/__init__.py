"""Encodes columns as JSON, as Spark's ``to_json`` does. Each column is encoded in one pass for all
rows.

Owns: the text of the JSON. Never: the choice of columns (``records/column_plan.py``), a Kafka
record.

``json_text`` builds objects, arrays and strings. ``json_numbers``, ``json_times``,
``json_intervals``, ``variant_text`` and ``base64_text`` (for binary) build the texts that Arrow's
casts can't build. ``plain_text`` builds text without quotes, such as the keys of maps.
"""
