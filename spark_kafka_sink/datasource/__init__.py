"""Spark's edge: the only importer of pyspark."""
