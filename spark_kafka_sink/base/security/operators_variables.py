"""A copy of the environment variables with the operator's limits, whose names begin with
``KPROD_ALLOWED_``.

The copy is made when the package is imported, before any option is read. So code that runs later,
such as a user's class, can't change the limits. A forked Spark worker has its parent's copy. Any
other process makes its own copy. ``allow_lists`` parses the variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

# The package's own ``__init__`` imports this module, so it must not import other modules of the
# package.
VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {name: text for name, text in os.environ.items() if name.startswith("KPROD_ALLOWED_")}
)
