"""A Kafka client's properties file, as the option ``configFile`` names one.

Owns: ``config_file`` (its lines as options) and ``java_properties`` (Java's format). Never: reading
bytes from a disk (``base/security/local_files.py``), what an option means.
"""
