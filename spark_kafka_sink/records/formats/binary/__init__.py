"""What formats share: how nodes (``records/nodes.py``) are made of columns and a schema
(``matching``), and the columnar encoder that follows them (``encoder``). Never: a schema.
"""
