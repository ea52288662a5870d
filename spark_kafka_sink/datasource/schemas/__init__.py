"""Chooses the schemas of keys and values on the driver, when a write is planned.

* ``payload_schemas``: chooses a schema and its id.
* ``column_types``: converts Spark's types.
* ``schema_cache``: stores the responses of a registry for the time when the registry is down.

No task imports this folder, and no file of the folder imports Arrow.
"""
