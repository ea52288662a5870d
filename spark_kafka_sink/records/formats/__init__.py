"""The payload formats: they build a record's key or value from several columns.

``composed_columns`` builds the keys and values in a task. Each format with a schema is one file
that implements the interface in ``schema_format.py``: ``avro_format.py``, ``protobuf_format.py``,
``json_schema.py``. On the driver, such a format derives a schema from columns, or checks columns
against a schema, without Arrow. In tasks, the same encoder (``binary``) encodes the columns for all
formats. ``column_type.py`` has the table of types.

Other packages choose the columns (``records/column_plan.py``) and the schema
(``datasource/schemas``), and send requests to a registry (``network/schema_registry.py``).
"""
