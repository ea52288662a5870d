"""The user's Spark session: registering the format, and the patches of Spark's classes.

Owns, by file:

==================  ==================================================================
registration        ``register(spark)``
spark_patches       how a method of Spark is replaced, and put back
default_mode        ``.save()`` without a mode appends
any_thread          writes from threads in which no session is active
refused_streams     triggers and output modes with which rows would be lost
session_settings    settings of the session that a write needs: its zone, JSON
session_tuning      Spark's options that make writes cheaper
==================  ==================================================================

Never: a write. Nothing of a task or of a commit imports this room.
"""
