"""``make bench`` keeps the newest measurement of each setting in bench/HISTORY.md."""

from bench.history import with_section

ROWS = "rows/s"


def _line(what: str, peer: str, unit: str = ROWS) -> tuple[str, str, str, str]:
    return what, f"1,234 {unit}", f"567 {unit} ({peer})", "2.18x (2.00-2.40, n=9)"


def _page(*lines: tuple[str, str, str, str]) -> str:
    return with_section("# Measurements\n", "2026-11-01, commit 1234567 (old)", "A load.", [*lines])


def _again(page: str, *lines: tuple[str, str, str, str]) -> str:
    return with_section(page, "2026-11-02, commit 89abcde (new)", "A load.", [*lines])


def test_a_new_section_is_the_first_one():
    page = _again(_page(_line("send", "Java")), _line("engine", "Java"))
    assert page.startswith("# Measurements\n\n## 2026-11-02, commit 89abcde (new)\n\nA load.\n\n|")
    assert page.index("| engine | 1,234 rows/s | 567 rows/s (Java) |") < page.index("| send |")


def test_a_measurement_replaces_the_older_one_of_its_peer():
    old = _page(_line("engine", "Java"), _line("engine", "produce()"), _line("engine", "Java", "s"))
    page = _again(old, _line("engine", "Java"))
    assert page.count("(Java)") == 2
    assert page.count("produce()") == 1


def test_all_older_commits_are_one_peer():
    page = _again(_page(_line("engine", "00f6664")), _line("engine", "66475c52"))
    assert "00f6664" not in page


def test_a_section_without_newest_rows_goes():
    page = _again(_page(_line("engine", "Java")), _line("engine", "Java"))
    assert page.count("\n## ") == 1


def test_a_section_of_another_command_stays():
    other = "\n## By hand\n\n| what | kprod | peer | kprod / peer |\n|---|---|---|---|\n"
    row = "| engine | 1 rows/s | 2 rows/s (Java) | 0.5x |\n\nA sentence | with bars.\n"
    page = _again(_page() + other + row, _line("engine", "Java"))
    assert page.endswith(other + row)
