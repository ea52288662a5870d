"""The names of the given options, from every source.

Owns: ``given_options`` (the entry point), ``given`` (the result), ``config_file`` (the lines of a
file), ``unknown_options`` (the error for a wrong name), ``foreign_options`` (other components'
names). Never: a value of an option (``cross_checks``).
"""
