"""The shared part of the formats with a schema. ``matching`` matches columns with a schema's
fields, and describes the result as nodes (``records/nodes.py``). ``encoder`` encodes columns as the
nodes describe. Never: a schema.
"""
