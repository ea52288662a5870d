"""A copy of the environment variables with the operator's limits, made when the package is
imported.

The copy has the variables with a name that begins with ``KPROD_ALLOWED_``. ``allow_lists`` has
their meaning. The copy is made before any option is read, so no code that an option names can
change the copy.

The package's own ``__init__`` imports this module, so this module imports no other module of the
package. A forked Spark worker has its parent's copy. Any other process makes a copy of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {name: text for name, text in os.environ.items() if name.startswith("KPROD_ALLOWED_")}
)
