"""Schemas of keys and values, at planning: the types of columns (``column_types``), the choice of
the schema and its id (``payload_schemas``), and the kept responses for times without a registry
(``schema_cache``). Never: Arrow, a row, a task.
"""
