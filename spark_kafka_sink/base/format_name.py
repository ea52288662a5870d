"""The name of the data source: ``df.write.format("kprod")``."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "kprod"
