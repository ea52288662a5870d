"""Protobuf: schemas, read by protoc (``proto_schema``), derived from columns or matched with them
(``proto_match``), and the columnar encoder (``proto_encoder``), which follows the result of the
match (``proto_nodes``). ``protobuf_format`` is the seam. Never: reading messages.

Tasks need numpy and Arrow only; the driver needs the extra ``protobuf``. ptars, which is faster,
is not used: it panics on a null that its own schema excludes, prints a backtrace, and takes text
that is not UTF-8.
"""
