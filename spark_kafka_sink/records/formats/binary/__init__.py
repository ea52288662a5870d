"""The shared part of binary formats: the match between columns and a schema, which makes nodes
(``records/nodes.py``; ``matching``), and the columnar encoder that follows them (``encoder``).
Never: a schema.
"""
