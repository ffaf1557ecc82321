"""Tables of generated pages: a long one waits behind a line that opens it."""

from tools.markdown import folded, table

LONG = table(["`a`", "b", "", "c", "d", "e", "f"], [["1"] * 7] * 30)
SHORT = table(["a", "b"], [["1", "2"]] * 3)


def test_a_long_table_is_folded_and_a_short_one_is_not():
    page = folded(f"# Page\n\n{LONG}\n\nBetween.\n\n{SHORT}\n")
    first = "<details><summary>30 rows: a, b, c, d, e, …</summary>"
    assert page == f"# Page\n\n{first}\n\n{LONG}\n\n</details>\n\nBetween.\n\n{SHORT}\n"
    assert folded(page) == page


def test_a_table_at_the_end_and_a_name_that_is_markup():
    page = folded(table(["<b>"], [["one two three"]] * 40))
    assert page.startswith("<details><summary>40 rows: &lt;b&gt;</summary>")
    assert page.endswith("</details>\n")
