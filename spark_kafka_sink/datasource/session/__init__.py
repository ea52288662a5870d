"""The user's Spark session: registers the format, and patches Spark's classes.

These files are used in the user's process. A task and a commit import none of them.

* ``registration``: ``register(spark)``.
* ``spark_patches``: replaces a method of Spark, and restores it.
* ``default_mode``: ``.save()`` without a mode appends.
* ``any_thread``: writes from threads without an active session.
* ``refused_streams``: refuses triggers and output modes that would lose rows.
* ``session_settings``: passes the session's time zone and JSON settings to a write.
* ``session_tuning``: Spark configs that make writes cheaper.
"""
