"""The options ``errors.*``."""
