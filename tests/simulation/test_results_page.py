from tests.simulation.results_page import replaced, table

PAGE = "# Results\n\nThe head.\n\n## Producers\n\nold\n\n### More\n\nold\n\n## Queries\n\nstays\n"


def test_a_run_replaces_its_own_section_only():
    page = replaced(PAGE, "Producers", "new")
    assert page == "# Results\n\nThe head.\n\n## Producers\n\nnew\n\n## Queries\n\nstays\n"
    assert replaced(page, "Queries", "new").endswith("## Producers\n\nnew\n\n## Queries\n\nnew\n")


def test_a_section_that_is_missing_comes_last():
    assert replaced(PAGE, "Orders", "new") == f"{PAGE}\n## Orders\n\nnew\n"


def test_a_table_has_its_head_and_a_line_a_row():
    assert table("what | times", [("cut", 3)]) == "| what | times |\n|---|---|\n| cut | 3 |"
