from tools.count_lines import code_lines, main

SOURCE = '''"""A module
of two lines."""

import math  # a comment beside code counts as code

# a comment does not


def area(r: float) -> float:
    """What it is."""
    return math.pi * (
        r**2

    )


TEXT = """a text
of two lines"""
'''


def test_docstrings_comments_and_blank_lines_do_not_count():
    assert code_lines(SOURCE) == len(["import", "def", "return", "r**2", ")", "TEXT", "of two"])
    assert code_lines("") == 0


def test_folders_are_counted_one_by_one_and_together(tmp_path, capsys):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text("x = 1\n")
    main([str(tmp_path / "one"), str(tmp_path)])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["7", "8", "15"]
