"""Options that several commands share, and values that hold commas."""

import typer

from rood.errors import InputError

CONFIG = typer.Argument(help="Settings as TOML; options override them.")
MODEL = typer.Option(
    help="Zoo name, checkpoint.safetensors, hf:NAME, timm:NAME, program.pt2, torchscript.pt or "
    "package.module:function."
)
WEIGHTS = typer.Option(help="Weights for package.module:function: .safetensors or .pth.")
MEAN = typer.Option(help="Per-channel mean, comma-separated, where --model has none.")
STD = typer.Option(help="Per-channel standard deviation, comma-separated.")
SIZE = typer.Option(help="Image size, 32 or 32x48; default: the network's.")
DETECTOR = typer.Option(help="The detector; see rood list detectors.")
INSIDE = typer.Option(help="ID images: folder:DIR, npz:FILE, ...; a part sets the threshold.")
OUTSIDE = typer.Option(help="OOD images, [NAME=]SPEC; may be repeated.")
GROUPS = typer.Option(
    help="Images that are not independent, [SET=]folder or [SET=]COLUMN; may be repeated."
)
OPEN_SET = typer.Option(
    help="Classes of --inside to hold out as an OOD set, by name or number, comma-separated."
)
CORRUPTIONS = typer.Option(
    help="Severity 1 to 5: count false alarms on ID images under noise, blur, weather, JPEG, too."
)
DETECTORS = typer.Option(help="Detector names, comma-separated, or all.")
LIMIT = typer.Option(help="Images per set; 0 for all.")
TRAIN = typer.Option(help="Labelled images to fit the detectors on; default: a part of --inside.")
ATTACK = typer.Option(help="The attack: pgd, apgd, worst_of, ...; see rood list attacks.")
TIER = typer.Option(help="Preset of worst_of: quick, standard or full.")
STEPS = typer.Option(help="Attack steps.")
RESTARTS = typer.Option(help="Attack restarts.")
DEVICE = typer.Option(help="auto, cpu, cuda, cuda:1, ...")
SEED = typer.Option(help="Random seed.")
BATCH_SIZE = typer.Option(help="Images per batch; changes speed, not scores.")
TRUST = typer.Option("--trust", help="Let a network from a file or hub run its own code.")
OFFLINE = typer.Option("--offline", help="Use only files on this machine.")
ENGINE = typer.Option(help="local, or ray: workers on this machine or a cluster.")
WORKERS = typer.Option(help="Ray workers; default: one per core or GPU.")
ADDRESS = typer.Option(help="A running Ray cluster; auto: the one on this machine.")
AS_JSON = typer.Option("--json", help="Print rows as JSON lines on stdout.")
QUIET = typer.Option("--quiet", help="Show no progress.")
SKIP_BAD = typer.Option("--skip-bad", help="Skip unreadable images and report how many.")

ANYWAY = typer.Option("--anyway", help="Go on although a check of `rood doctor` failed.")


def listed(option: str, text: str | None) -> tuple[str, ...] | None:
    """Split "a, b" into ("a", "b"); None where the option was not given."""
    if text is None:
        return None
    parts = tuple(p.strip() for p in text.split(",") if p.strip())
    if not parts:
        raise InputError(f"expected comma-separated values for {option}, got {text!r}")
    return parts


def numbers(option: str, text: str | None) -> tuple[float, ...] | None:
    """Split "0.4,0.5" into (0.4, 0.5); None where the option was not given."""
    try:
        return None if text is None else tuple(map(float, listed(option, text) or ()))
    except ValueError as e:
        what = f"comma-separated numbers for {option}, such as 0.485,0.456,0.406"
        raise InputError(f"expected {what}, got {text!r}") from e
