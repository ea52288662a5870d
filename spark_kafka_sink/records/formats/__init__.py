"""The payload formats: they build a record's key or value from several columns.

Owns: the composing of columns (``composed_columns``), and the formats with a schema. The driver
derives a schema from columns, or checks columns against a schema, without Arrow. In tasks, the same
encoder (``binary``) encodes the columns for all formats. Never: the choice of columns
(``records/column_plan.py``), the choice of a schema (``datasource/schemas``), a request to a
registry (``network/schema_registry.py``).

Each format with a schema is one file that implements the interface in ``schema_format.py``:
``avro_format.py``, ``protobuf_format.py``, ``json_schema.py``. ``column_type.py`` has the table of
types.
"""
