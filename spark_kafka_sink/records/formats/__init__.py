"""Columns as payloads: named columns become the bytes of a record's key or value.

Owns: composing columns (``composed_columns``), and the formats with a schema: how a schema is
derived from columns or checked against them (on the driver, without Arrow), and the columnar
encoder of all (in tasks; ``binary``). Never: which columns (``records/column_plan.py``), which
schema (``datasource/schemas``), a request to a registry (``network/schema_registry.py``).

A format is one file behind the seam of ``schema_format.py``: ``avro_format.py``,
``protobuf_format.py``, ``json_schema.py``. ``column_type.py`` has the table of types.
"""
