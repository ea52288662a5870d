"""Encodes columns as JSON, as Spark's ``to_json`` does. Each column is encoded in one pass for all
rows.

``json_text`` builds objects, arrays and strings. ``json_numbers``, ``json_times``,
``json_intervals``, ``variant_text`` and ``base64_text`` (for binary) build the texts that Arrow's
casts can't build. ``zone_offsets`` finds the offsets of time zones, and ``escapes`` has the escapes
of a string. ``plain_text`` builds text without quotes, such as the keys of maps.
"""
