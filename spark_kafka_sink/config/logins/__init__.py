"""What the ``ssl.`` and ``sasl.`` options of a client mean together.

Owns: ``security_rules`` (which of them count when, and the options of login modules),
``sasl_settings`` (one mechanism and its settings) with ``oauth_settings`` (where a token comes
from). Never: a row of the table (``option_table``), a connection, a secret's look-up
(``base/security``).
"""
