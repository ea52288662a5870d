"""Avro: schemas (``avro_schema``), derived from columns (``derived_schema``) or matched with them
(``column_match``), and the columnar encoder (``avro_encoder``), which follows the result of the
match (``avro_nodes``). ``avro_format`` is the seam. Never: a file of Avro, reading.
"""
