"""Lines of Python that are code: no docstrings, no comments, no blank lines.

python tools/count_lines.py [FOLDER ...]      one row per folder, and their sum
"""

import ast
import io
import sys
import tokenize
from pathlib import Path

SKIPPED = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """How many lines of a file hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def main(folders: list[str]) -> None:
    """Count every folder; by default those of the repository that hold Python."""
    total = 0
    for folder in folders or sorted({p.parts[0] for p in Path().glob("[!.]*/**/*.py")}):
        n = sum(code_lines(p.read_text()) for p in sorted(Path(folder).rglob("*.py")))
        print(f"{n:7}  {folder}")
        total += n
    print(f"{total:7}  all")


if __name__ == "__main__":
    main(sys.argv[1:])
