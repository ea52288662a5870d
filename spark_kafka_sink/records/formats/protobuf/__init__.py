"""Protobuf: schemas, read by protoc or derived from columns (``proto_schema``), and matched with
columns (``protobuf_format``, the seam). Never: bytes of rows (``formats/binary``), reading them.

Tasks need numpy and Arrow only; the driver needs the extra ``protobuf``.
"""
