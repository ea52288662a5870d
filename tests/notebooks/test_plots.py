"""A plot of a notebook as a picture of the site: colours by scheme, ids of its own, words."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.figure import Figure

from tools import notebooks, plots


def drawn(tmp_path, values):
    """matplotlib's SVG of bars with intervals, by the settings that a notebook runs with."""
    plots.write_settings(tmp_path)
    with matplotlib.rc_context(fname=str(tmp_path / "matplotlibrc")):
        figure = Figure(figsize=(3, 2))
        axes = figure.subplots()
        axes.bar(["a", "b"], values, yerr=[1, 1], capsize=4, color="tab:orange", label="speed")
        axes.legend()
        file = io.StringIO()
        figure.savefig(file, format="svg")
    return file.getvalue()


@pytest.fixture
def svg(tmp_path):
    return drawn(tmp_path, [2, 3])


def ids(picture):
    return {one.get("id") for one in ElementTree.fromstring(picture).iter()} - {None}


def test_colours_are_those_of_the_readers_scheme(svg):
    picture = plots.picture(svg, "speed_1", "Speed, a plot")
    shown = picture.partition("</style>")[2]
    assert re.findall(r"#[0-9a-f]{6}\b", shown) == []
    assert {"var(--ink)", "var(--spark-line)"} <= set(re.findall(r"var\([^)]*\)", shown))
    assert "@media(prefers-color-scheme:dark)" in picture
    assert "fill:var(--ink)" in picture  # text


def test_it_shrinks_with_the_page_and_says_what_it_shows(svg):
    root = ElementTree.fromstring(plots.picture(svg, "speed_1", "Speed, a plot"))
    assert root.get("aria-label") == "Speed, a plot"
    assert root.get("viewBox")
    assert root.get("height") is None  # that of the width that there is
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]


def test_two_of_a_page_share_no_id_and_each_leads_somewhere(svg, tmp_path):
    first = plots.picture(svg, "speed_1", "Speed")
    second = plots.picture(drawn(tmp_path, [4, 5]), "speed_2", "Speed")
    assert ids(first)
    assert not ids(first) & ids(second)
    for picture in (first, second):
        named = re.findall(r'url\(#([^)]+)\)|href="#([^"]+)"', picture)
        assert {one or other for one, other in named} == ids(picture)


@pytest.mark.parametrize("path", sorted(notebooks.PAGES.glob("*.svg")), ids=lambda path: path.stem)
def test_a_plot_of_the_pages_is_one(path):
    text = path.read_text("utf-8")
    assert text.startswith('<svg class="kp-plot" ')
    assert "#000000" not in text
    assert all(one.startswith(f"{path.stem}-") for one in ids(text))
