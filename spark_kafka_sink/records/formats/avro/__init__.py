"""Avro: schemas, read or derived from columns (``avro_schema``), and matched with columns
(``avro_format``, the seam). Never: bytes of rows (``formats/binary``), a file of Avro, reading.
"""
