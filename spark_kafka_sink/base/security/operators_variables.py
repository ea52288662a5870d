"""The operator's variables, as they were when the package was imported: before any option.

Owns: :data:`VARIABLES`. Never: their meaning (``allow_lists``). It imports nothing of ours: the
package itself imports it. A forked worker inherits them; every other process reads its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {name: text for name, text in os.environ.items() if name.startswith("KPROD_ALLOWED_")}
)
