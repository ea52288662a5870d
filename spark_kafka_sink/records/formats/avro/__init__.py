"""Avro: schemas (``avro_schema``), derived from columns (``avro_format``, the seam) or matched with
them (``avro_match``). Never: bytes of rows (``formats/binary``), a file of Avro, reading.
"""
