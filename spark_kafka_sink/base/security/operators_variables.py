"""A copy of the operator's environment variables, made when the package is imported and before any
option is read.

Owns: :data:`VARIABLES`. Never: the meaning of the variables (``allow_lists``). This module imports
no other module of the package, because the package itself imports it. A forked worker inherits the
copy. Every other process reads the variables itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {name: text for name, text in os.environ.items() if name.startswith("KPROD_ALLOWED_")}
)
