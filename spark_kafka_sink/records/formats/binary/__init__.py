"""The shared part of the formats with a schema. ``matching`` matches columns with a schema's
fields, which makes nodes (``records/nodes.py``), and ``encoder`` encodes columns as the nodes
describe. Never: a schema.
"""
