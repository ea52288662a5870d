"""Protobuf: schemas, read by protoc (``proto_schema``), derived from columns or matched with them
(``proto_match``). ``protobuf_format`` is the seam. Never: bytes of rows (``formats/binary``),
reading messages.

Tasks need numpy and Arrow only; the driver needs the extra ``protobuf``.
"""
