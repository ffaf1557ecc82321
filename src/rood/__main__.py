"""`python -m rood`: the command."""

from rood.cli import app

if __name__ == "__main__":
    app(prog_name="rood")
