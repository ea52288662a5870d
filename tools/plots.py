"""Converts the plot of a notebook to an SVG for the site.

This module has the settings of matplotlib for such a plot, and changes the SVG that matplotlib
writes. Its colours become CSS variables: their values depend on the reader's colour scheme (light
or dark), which the site's own switch can override. Its ids get a prefix that is different for each
picture, because a page can have several pictures.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from tools.pictures.drawing import colours

#: Text stays text, and ids are the same in each run.
_MATPLOTLIBRC = "svg.fonttype: none\nsvg.hashsalt: kprod\n"
#: What the kernel is started with: plots are SVG.
KERNEL_ARGUMENTS = ("--InlineBackend.figure_formats=svg",)
#: matplotlib's colours, and the names of ours.
_COLOURS = {
    "#000000": "--ink",
    "#cccccc": "--line",
    "#1f77b4": "--kafka-line",
    "#ff7f0e": "--spark-line",
    "#2ca02c": "--own-line",
    "#d62728": "--bad",
    "#9467bd": "--soft",
}
_STYLE = (
    colours("kp-plot")
    + ".kp-plot text{fill:var(--ink)}.kp-plot *{stroke-linejoin:round;stroke-linecap:butt}"
)
_HEAD = re.compile(r".*?<svg (.*?)>", re.DOTALL)
_SIZE = re.compile(r'height="[\d.]+pt" ?')


def write_settings(folder: Path) -> None:
    """Where a notebook runs, matplotlib finds them."""
    (folder / "matplotlibrc").write_text(_MATPLOTLIBRC, encoding="utf-8")


def picture(svg: str, name: str, title: str) -> str:
    """matplotlib's ``svg`` as the file ``name`` of a page, with what it shows in words."""
    svg = re.sub(
        r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL
    )
    svg = svg.replace("fill: #ffffff", "fill: none")  # the page's own
    for colour, variable in _COLOURS.items():
        svg = svg.replace(f": {colour}", f": var({variable})")
    used = set(re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', svg))
    ids = {one or other for one, other in used}
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in ids else "", svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", svg)
    found = _HEAD.match(svg)
    assert found is not None, f"{name} is no SVG"
    attributes = _SIZE.sub("", found[1])
    head = f'<svg class="kp-plot" role="img" aria-label="{escape(title)}" {attributes}>'
    body = re.sub(r"\n\s*", "\n", svg[found.end() :]).strip()
    return f"{head}\n<style>{_STYLE}</style>\n{body}\n"
