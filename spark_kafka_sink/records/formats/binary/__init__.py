"""The code that all formats with a schema share.

* ``matching``: finds the column for each field of a schema. A format then returns a tree of nodes
  (``records/nodes.py``), which describes how the columns are encoded.
* ``encoder``: encodes columns with these nodes, and does not need the schema.
"""
