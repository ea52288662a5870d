"""The code that all formats with a schema share.

``matching`` finds the column for each field of a schema. The result is described as nodes
(``records/nodes.py``). ``encoder`` encodes columns with the nodes. Never: a schema.
"""
