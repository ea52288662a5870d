"""The payload formats, which build a record's key or value from several columns.

* ``composed_columns``: builds the keys and values in a task.
* ``schema_format``: the interface of a format with a schema. Through it, the driver derives a
  schema from columns, or checks columns against a schema, without Arrow.
* ``avro_format``, ``protobuf_format``, ``json_schema``: the formats with a schema.
* ``binary``: encodes columns in a task, with the same encoder for all formats with a schema.
* ``column_type``: the table of types.

Other packages choose the columns (``records/column_plan.py``) and the schema
(``datasource/schemas``), and send requests to a registry (``network/schema_registry.py``).
"""
