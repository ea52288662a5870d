"""Draws conf/monitoring/kprod-dashboard.json as an SVG from what a Prometheus has.

It is no Grafana: panels, places, expressions and titles are the dashboard's, the lines are
matplotlib's. ``demo_ops.py --picture`` calls it.
"""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "conf/monitoring/kprod-dashboard.json"
#: Of a unit of the grid's 24 by n; inches.
CELL_W, CELL_H = 0.62, 0.34
VARIABLES = {"$query": ".*", "$__rate_interval": "15s"}


def draw(get: Callable[..., Any], seconds: float) -> str:
    """The SVG of the last ``seconds``; ``get`` asks Prometheus' HTTP API."""
    plt.rcParams |= {"font.size": 7, "svg.fonttype": "none", "svg.hashsalt": "kprod"}
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    rows = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in panels)
    figure = plt.figure(figsize=(24 * CELL_W, rows * CELL_H))
    end = time.time()
    for panel in panels:
        place = panel["gridPos"]
        x, top = place["x"] / 24, 1 - place["y"] / rows
        if panel["type"] == "row":
            figure.text(0.008, top - 0.6 / rows, panel["title"], weight="bold", size=9)
            continue
        box = (
            x + 0.035,
            top - (place["h"] - 1.3) / rows,
            place["w"] / 24 - 0.045,
            (place["h"] - 2.6) / rows,
        )
        axes = figure.add_axes(box)
        axes.set_title(panel["title"], loc="left", size=8)
        if panel["type"] == "stat":
            _stat(axes, panel, get, end)
        else:
            _lines(axes, panel, get, end - seconds, end)
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    plt.close(figure)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _expression(target: dict[str, Any]) -> str:
    expression: str = target["expr"]
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def _stat(axes: Any, panel: dict[str, Any], get: Callable[..., Any], end: float) -> None:  # noqa: ANN401
    axes.axis("off")
    found = get("query", query=_expression(panel["targets"][0]), time=end)["result"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    text = _shown(float(found[0]["value"][1]), unit) if found else "no data"
    axes.text(0.5, 0.4, text, size=15, ha="center", va="center")


def _lines(
    axes: Any,  # noqa: ANN401
    panel: dict[str, Any],
    get: Callable[..., Any],
    begin: float,
    end: float,
) -> None:
    names, series = [], []
    for target in panel["targets"]:
        step = max((end - begin) / 120, 1)
        answer = get("query_range", query=_expression(target), start=begin, end=end, step=step)
        for one in answer["result"]:
            labels = one["metric"]
            form = target["legendFormat"]
            names.append(re.sub(r"{{(\w+)}}", lambda m, of=labels: of.get(m[1], ""), form))
            series.append({float(at): float(value) for at, value in one["values"]})
    defaults = panel["fieldConfig"]["defaults"]
    if "custom" in defaults and series:  # stacked
        times = sorted({at for one in series for at in one})
        axes.stackplot(
            [at - begin for at in times],
            [[_number(one.get(at, 0)) for at in times] for one in series],
            labels=names,
            alpha=0.7,
        )
    else:
        for name, one in zip(names, series, strict=True):
            axes.plot([at - begin for at in one], list(one.values()), label=name, linewidth=1)
    axes.set_xlim(0, end - begin)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _shown(v, defaults["unit"])))
    axes.tick_params(labelsize=6)
    axes.grid(alpha=0.3)
    if names:
        axes.legend(fontsize=5, loc="upper left", ncols=2, framealpha=0.5)


def _number(value: float) -> float:
    return value if value == value else 0  # NaN: 0 by 0


def _shown(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    if unit == "s":
        return f"{value * 1000:.0f} ms" if abs(value) < 1 else f"{value:.1f} s"
    suffix = " B/s" if unit == "Bps" else "/s" if unit == "reqps" else ""
    for size, prefix in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f} {prefix}{suffix.strip()}"
    return f"{value:.3g}{suffix}"
