"""What formats share: nodes, how columns are written (``nodes``), made of columns and a schema
(``matching``), and the columnar encoder that follows them (``encoder``). Never: a schema.
"""
