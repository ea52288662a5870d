"""Payload formats, which convert named columns to the bytes of a record's key or value.

Owns: composing columns (``composed_columns``), and the formats with a schema. On the driver, a
schema is derived from columns, or columns are checked against a schema. This needs no Arrow. In
tasks, one columnar encoder (``binary``) serves all formats. Never: the choice of columns
(``records/column_plan.py``), the choice of a schema (``datasource/schemas``), a request to a
registry (``network/schema_registry.py``).

Each format is one file that implements the interface in ``schema_format.py``: ``avro_format.py``,
``protobuf_format.py``, ``json_schema.py``. ``column_type.py`` has the table of types.
"""
