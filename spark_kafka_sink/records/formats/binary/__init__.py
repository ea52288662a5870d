"""The code that all formats with a schema share.

``matching`` finds the column for each field of a schema. The result of ``matching`` is a tree of
nodes (``records/nodes.py``). ``encoder`` encodes columns with these nodes. Never: a schema.
"""
