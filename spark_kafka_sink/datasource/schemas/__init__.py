"""Schemas of keys and values, which the driver chooses when it plans a write.

Owns: the types of columns (``column_types``), the choice of the schema and its id
(``payload_schemas``), and the stored responses of a registry for the time when it is down
(``schema_cache``). Never: Arrow, a row, a task.
"""
