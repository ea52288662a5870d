"""Avro: schemas (``avro_schema``), derived from columns (``derived_schema``) or matched with them
(``avro_match``, ``avro_defaults``). ``avro_format`` is the seam. Never: bytes of rows
(``formats/binary``), a file of Avro, reading.
"""
