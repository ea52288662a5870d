"""Encodes columns as JSON, as Spark's ``to_json`` does. Each column is encoded in one pass for all
rows.

* ``json_text``: objects, arrays and strings.
* ``json_numbers``, ``json_times``, ``json_intervals``, ``variant_text``: the texts that Arrow's
  casts can't build.
* ``base64_text``: the text of binary columns.
* ``plain_text``: text without quotes, such as the keys of maps.
* ``zone_offsets``: the offsets of time zones.
* ``escapes``: the escapes of characters in a string.
"""
