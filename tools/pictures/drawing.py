"""Boxes, arrows and words on a sheet, as SVG."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_LIGHT = """
--ink:#1f2430;--soft:#5b6275;--line:#8a91a5;--paper:#fff;--spark:#fdf0e3;--spark-line:#e08a3c;
--kafka:#e6eefb;--kafka-line:#4a76c9;--own:#e8f5ec;--own-line:#3d9a5f;--bad:#c0392b;--bad-fill:#fdecea
""".replace("\n", "")
_DARK = """
--ink:#e4e7ef;--soft:#a9b0c2;--line:#767d92;--paper:#1b1e26;--spark:#3a2c1e;--spark-line:#e09a5c;
--kafka:#1f2b44;--kafka-line:#7fa3ea;--own:#1d3327;--own-line:#62c088;--bad:#f0806f;--bad-fill:#43231f
""".replace("\n", "")


def colours(kind: str) -> str:
    """A picture's own colours, light and dark; the site's stylesheet sets them again for its two
    schemes.
    """
    return f".{kind}{{{_LIGHT}}}@media(prefers-color-scheme:dark){{.{kind}{{{_DARK}}}}}"


_STYLE = (
    colours("kp")
    + """
.kp{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:14px}
.kp text{fill:var(--ink)}.kp .soft{fill:var(--soft);font-size:12px}.kp .bad{fill:var(--bad)}
.kp .title{font-weight:600}.kp .code{font-family:ui-monospace,'DejaVu Sans Mono',monospace;font-size:12px}
.kp rect,.kp path,.kp line{stroke:var(--line);stroke-width:1.4;fill:none}
.kp .plain{fill:var(--paper)}.kp .spark{fill:var(--spark);stroke:var(--spark-line)}
.kp .kafka{fill:var(--kafka);stroke:var(--kafka-line)}.kp .own{fill:var(--own);stroke:var(--own-line)}
.kp .bad-box{fill:var(--bad-fill);stroke:var(--bad)}.kp .dashed{stroke-dasharray:5 4}
.kp .head{fill:var(--line);stroke:none}.kp .cross{stroke:var(--bad);stroke-width:2.4}
.kp text.large{font-size:18px}
.kp .interval{stroke:var(--ink);stroke-width:1.6}
""".replace("\n", "")
)


class Drawing:
    """A sheet of ``width`` by ``height`` units, that says in ``words`` what it shows."""

    def __init__(self, name: str, width: int, height: int, words: str) -> None:
        self._name, self._width, self._height, self._words = name, width, height, words
        self._parts: list[str] = []

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="kp" role="img"'
            f' viewBox="0 0 {self._width} {self._height}" aria-label="{escape(self._words)}">'
        )
        marker = (
            f'<defs><marker id="{self._name}-head" viewBox="0 0 8 8" refX="7" refY="4"'
            ' markerWidth="8" markerHeight="8" orient="auto-start-reverse">'
            '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>'
        )
        return "\n".join([head, f"<style>{_STYLE}</style>{marker}", *self._parts, "</svg>"]) + "\n"

    def rect(self, x: float, y: float, w: float, h: float, kind: str = "plain") -> None:
        self._parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="7"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """``words``, their base line at ``y``."""
        where = f'x="{x:g}" y="{y:g}" text-anchor="{anchor}"'
        self._parts.append(f'<text class="{kind}" {where}>{escape(words)}</text>')

    def box(
        self,
        at: tuple[float, float, float, float],
        title: str,
        lines: Iterable[str] = (),
        kind: str = "plain",
    ) -> None:
        """A box (x, y, width, height) with a title and smaller lines, in its middle."""
        x, y, w, h = at
        lines = list(lines)
        self.rect(x, y, w, h, kind)
        top = y + h / 2 - 8.5 * len(lines) + 5
        self.text(x + w / 2, top, title, "title", "middle")
        for number, line in enumerate(lines, start=1):
            self.text(x + w / 2, top + 17 * number, line, "soft", "middle")

    def frame(self, at: tuple[float, float, float, float], title: str, kind: str) -> None:
        """A box around others, its title at the top left."""
        self.rect(*at, kind)
        self.text(at[0] + 14, at[1] + 22, title, "title")

    def arrow(self, *points: tuple[float, float], dashed: bool = False, both: bool = False) -> None:
        """A line through the points, its head at the last one."""
        way = "L".join(f"{x:g} {y:g}" for x, y in points)
        start = f' marker-start="url(#{self._name}-head)"' if both else ""
        kind = ' class="dashed"' if dashed else ""
        self._parts.append(f'<path{kind} d="M{way}" marker-end="url(#{self._name}-head)"{start}/>')

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "") -> None:
        self._parts.append(
            f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>'
        )

    def cross(self, x: float, y: float) -> None:
        """Here somebody may die."""
        self._parts.append(
            f'<path class="cross" d="M{x - 6:g} {y - 6:g}L{x + 6:g} {y + 6:g}'
            f'M{x + 6:g} {y - 6:g}L{x - 6:g} {y + 6:g}"/>'
        )
