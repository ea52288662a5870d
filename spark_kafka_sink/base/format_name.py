"""The name of the format: ``df.write.format("kprod")``."""

from __future__ import annotations

from typing import Final

FORMAT: Final = "kprod"
