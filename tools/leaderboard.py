"""The leaderboard: a static site from the receipts in leaderboard/entries.

`make leaderboard` writes it into build/leaderboard. Nothing is typed by hand: each number is a row of
a receipt, lowered by the breaks in it.

    python -m tools.leaderboard [DIR]                  build the site
    python -m tools.leaderboard strip RECEIPT          leave attacked images and weights out of it
    python -m tools.leaderboard restore RECEIPT FULL   put them back from a full copy
    python -m tools.leaderboard add RECEIPT [FOUND]    make it an entry; FOUND: rood verify --json
    python -m tools.leaderboard --checked ID TIER      note that rood verify has passed today
"""

import csv
import html
import io
import json
import math
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rood._files import for_spreadsheets
from rood.evaluation.rows import Row
from rood.receipts.breaking import breaks, lowered_rows
from rood.receipts.entry import misnamed
from rood.receipts.finding import TIERS
from rood.receipts.receipt import Receipt
from rood.receipts.stripping import restore, strip
from rood.receipts.verify import verify
from rood.report import write_report
from rood.report.templating import embedded
from rood.threat import parse

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "leaderboard"
FREE = ("digits:", "procedural:")  # images that may be copied
COPIED = ("entry.json", "rows.jsonl", "manifest.json")


@dataclass(frozen=True)
class Line:
    """A line of the table: one detector on one network at one budget, on the hardest OOD set."""

    entry: str
    model: str
    borrowed: bool  # called as a network of the zoo, and another
    defence: str  # what the maintainers say of it
    detector: str
    data: str
    ood: str  # the hardest OOD set
    norm: str
    eps: float
    threat: str
    clean: float
    inside: float | None
    outside: float | None
    both: float | None
    low: float | None
    high: float | None
    n: int
    verdict: str
    accuracy: float | None
    parameters: int
    attack: str
    passes: int  # forward and backward passes per receipt
    tier: str
    checked: str
    date: str
    by: str
    broken: str  # by whom the number was lowered


def entries(folder: Path = FOLDER) -> Iterator[tuple[str, Receipt]]:
    """Every receipt of the board that the tier schema does not refute, by its name."""
    for path in sorted((folder / "entries").iterdir()):
        if path.is_dir():
            wrong = [str(f) for f in verify(path) if f.status == "fail"]
            if wrong:
                raise SystemExit(f"{path.name}: {wrong[0]}")
            yield path.name, Receipt(path)


def lines(name: str, receipt: Receipt) -> Iterator[Line]:
    """The lines of a receipt."""
    rows, entry, checked = lowered_rows(receipt), receipt.entry, _check(receipt)
    borrowed = misnamed(entry)
    passes = entry.cost.get("forwards", 0) + entry.cost.get("backwards", 0)
    for model, fingerprint in entry.models.items():
        accuracy = [r.value for r in rows if (r.model, r.metric) == (model, "accuracy")]
        for detector in entry.detectors[model]:
            mine = [r for r in rows if (r.model, r.detector) == (model, detector)]
            for threat in entry.threats:
                both = _worst(mine, "both", threat)
                budget = parse(threat)
                yield Line(
                    entry=name,
                    model=model,
                    borrowed=model in borrowed,
                    defence=defence(name),
                    detector=detector,
                    data=entry.named.inside or entry.data["inside"].source,
                    ood="" if both is None else both.dataset,
                    norm=budget.norm,
                    eps=budget.eps,
                    threat=threat,
                    clean=min(r.value for r in mine if (r.metric, r.side) == ("auroc", "none")),
                    inside=_value(_worst(mine, "inside", threat)),
                    outside=_value(_worst(mine, "outside", threat)),
                    both=_value(both),
                    low=None if both is None else both.low,
                    high=None if both is None else both.high,
                    n=0 if both is None else min(both.n_in, both.n_out),
                    verdict="-" if both is None else both.verdict,
                    accuracy=accuracy[0] if accuracy else None,
                    parameters=entry.network(fingerprint).parameters,
                    attack=str(entry.attack.settings.get("tier", entry.attack.name)),
                    passes=int(passes) if math.isfinite(passes) else 0,
                    tier=checked["tier"],
                    checked=checked["date"],
                    date=entry.date[:10],
                    by=entry.by,
                    broken=_broken(receipt, model, detector, threat),
                )


def defence(name: str) -> str:
    """What leaderboard/defences.toml says of an entry."""
    known = tomllib.loads((FOLDER / "defences.toml").read_text())
    return next((told for pattern, told in known.items() if fnmatchcase(name, pattern)), "")


def readable(spec: str) -> str:
    """Images as people call them: cifar10_test for npz:$ROOD_DATA/cifar10_test.npz."""
    whole, part = spec.removeprefix("share:"), ""
    if whole != spec:
        part, _, whole = whole.partition("@")
    name = re.sub(r"^npz:(\$ROOD_DATA/)?|\.npz$", "", whole)
    return f"{name}, part {part}" if part else name


def _worst(rows: list[Row], side: str, threat: str) -> Row | None:
    mine = [
        r
        for r in rows
        if r.metric == "auroc" and r.side == side and r.scenario.endswith(f" {threat}")
    ]
    return min(mine, key=lambda r: r.value, default=None)


def _value(row: Row | None) -> float | None:
    return None if row is None else row.value


def _broken(receipt: Receipt, model: str, detector: str, threat: str) -> str:
    mine = (model, detector, threat)
    found = [b.by for b in breaks(receipt) if (b.model, b.detector, b.threat) == mine]
    return found[-1] if found else ""


def _beside(path: Path) -> Path:
    """ID.check.json beside the folder of a receipt: how far it was checked, and when."""
    return path.parent / f"{path.name}.check.json"


def _check(receipt: Receipt) -> dict[str, str]:
    """The tier and the date beside a receipt; one without, or of another hash, has schema."""
    try:
        said = json.loads(_beside(receipt.path).read_text())
    except (OSError, ValueError):
        said = {}
    if said.get("receipt") != receipt.digest or said.get("tier") not in TIERS:
        return {"tier": "schema", "date": "at each build"}
    return {"tier": said["tier"], "date": said["date"]}


def record(path: Path, tier: str, day: str) -> None:
    """Note that a receipt was checked up to a tier, beside it."""
    told = {"receipt": Receipt(path).digest, "tier": tier, "date": day}
    _beside(path).write_text(json.dumps(told, indent=1) + "\n")


def figure(found: list[Line]) -> list[dict[str, Any]]:
    """AUROC against eps: one line of points for each entry, detector and norm."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for line in found:
        groups.setdefault((line.entry, line.detector, line.norm), []).append(line)
    return [
        {
            "name": f"{entry} {detector}",
            "norm": norm,
            "model": mine[0].model,
            "data": mine[0].data,
            "defence": mine[0].defence,
            "points": [[0.0, mine[0].clean]]
            + [[x.eps, x.both] for x in sorted(mine, key=lambda x: x.eps) if x.both is not None],
        }
        for (entry, detector, norm), mine in groups.items()
    ]


def as_csv(found: list[Line]) -> str:
    """The table for spreadsheets; text that one would run is quoted."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, list(Line.__dataclass_fields__), lineterminator="\n")
    table.writeheader()
    table.writerows({k: for_spreadsheets(v) for k, v in asdict(x).items()} for x in found)
    return text.getvalue()


def rss(found: list[Line], title: str) -> str:
    """One item per receipt and break, the newest first."""
    items = {(x.date, x.entry, x.broken): x for x in found}
    body = "".join(
        f"<item><title>{html.escape(_headline(x))}</title>"
        f"<link>entries/{html.escape(x.entry)}/index.html</link>"
        f'<guid isPermaLink="false">{html.escape(f"{x.entry} {x.date} {x.broken}")}</guid></item>'
        for _, x in sorted(items.items(), reverse=True)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0"><channel>'
        f"<title>{title}</title><link>index.html</link><description>{title}</description>{body}"
        "</channel></rss>\n"
    )


def _headline(x: Line) -> str:
    what = f"lowered by {x.broken}" if x.broken else "added"
    return f"{x.model} {x.detector}: {what} ({x.date})"


def eval_results(found: list[Line]) -> str:
    """Hugging Face's .eval_results YAML: a list of results with their source."""
    parts = []
    for x in found:
        for metric, value in (("auroc_clean", x.clean), (f"auroc_both_{x.threat}", x.both)):
            if value is not None:
                parts.append(
                    f"- dataset:\n    id: {json.dumps(x.data)}\n    task_id: ood_detection\n"
                    f"  value: {value:.6f}\n  date: {json.dumps(x.date)}\n"
                    f"  notes: {json.dumps(f'{x.detector}, {metric}, n={x.n}, {x.attack}')}\n"
                    f"  source:\n    url: {json.dumps(f'entries/{x.entry}/index.html')}\n"
                    f"    name: rood receipt\n"
                )
    return "".join(parts)


def history(receipt: Receipt) -> list[dict[str, Any]]:
    """How the numbers of a receipt fell."""
    return [asdict(b) | {"date": b.date[:10]} for b in breaks(receipt)]


def build(out: Path, folder: Path = FOLDER, *, reports: bool = True) -> list[Line]:
    """Write the site; what was there is replaced."""
    env = Environment(
        loader=FileSystemLoader(FOLDER / "site"), autoescape=True, undefined=StrictUndefined
    )
    env.filters["readable"] = readable
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    found: list[Line] = []
    style = Markup((FOLDER / "site" / "board.css").read_text())
    for name, receipt in entries(folder):
        mine = list(lines(name, receipt))
        found += mine
        to = out / "entries" / name
        to.mkdir(parents=True)
        for file in COPIED:
            shutil.copy(receipt.path / file, to / file)
        if reports:
            _report(receipt, to)
        page = env.get_template("entry.html.j2").render(
            name=name,
            entry=receipt.entry,
            digest=receipt.digest,
            lines=mine,
            history=history(receipt),
            report=reports,
            style=style,
        )
        (to / "index.html").write_text(page)
        (to / "eval_results.yaml").write_text(eval_results(mine))
    values = [asdict(x) for x in found]
    script = Markup((FOLDER / "site" / "board.js").read_text())
    best = sorted(found, key=lambda x: -1.0 if x.both is None else x.both, reverse=True)
    page = env.get_template("board.html.j2").render(
        lines=best, data=Markup(embedded(figure(found))), style=style, script=script
    )
    (out / "index.html").write_text(page)
    (out / "board.json").write_text(json.dumps(values, indent=1) + "\n")
    (out / "board.csv").write_text(as_csv(found))
    (out / "board.rss").write_text(rss(found, "Attacked OOD detectors"))
    return found


def _report(receipt: Receipt, to: Path) -> None:
    """The page of the receipt's own results, written beside copies of them."""
    for part in ("scores", "classes"):
        if (receipt.path / part).is_dir():
            shutil.copytree(receipt.path / part, to / part)
    write_report(to)
    for part in ("scores", "classes"):
        shutil.rmtree(to / part, ignore_errors=True)


def add(source: Path, found: Path | None, day: str, folder: Path = FOLDER) -> Path:
    """Make a receipt an entry without images and weights; `found` is what rood verify --json told.

    Receipts of images that rood ships keep theirs, so that everybody can score them again.
    """
    receipt, tier = Receipt(source), "schema"
    if found is not None:
        told = json.loads(found.read_text())
        if (told["receipt"], told["verdict"]) != (receipt.digest, "verified"):
            raise SystemExit(f"{found}: expected that {source.name} was verified, it was not")
        tier = told["tier"]
    if wrong := [str(f) for f in verify(source) if f.status == "fail"]:
        raise SystemExit(f"{source.name}: {wrong[0]}")
    to = folder / "entries" / source.name
    shutil.copytree(source, to)
    if not all(spec.startswith(FREE) for spec in _specs(receipt)):
        strip(Receipt(to))
    record(to, tier, day)
    return to


def _specs(receipt: Receipt) -> list[str]:
    named = receipt.entry.named
    return [named.inside, *named.outside.values()]


def main(words: list[str]) -> None:
    """Build the site, or do one of the things in the module's text."""
    day = date.today().isoformat()
    match words:
        case ["--checked", name, tier]:
            record(FOLDER / "entries" / name, tier, day)
        case ["strip", receipt]:
            strip(Receipt(Path(receipt)))
        case ["restore", receipt, full]:
            restore(Receipt(Path(receipt)), Path(full))
        case ["add", receipt, *found] if len(found) < 2:
            print(add(Path(receipt), Path(found[0]) if found else None, day))
        case [] | [_]:
            target = Path(words[0]) if words else ROOT / "build" / "leaderboard"
            made = build(target)
            count = len({x.entry for x in made})
            print(f"{target / 'index.html'}: {count} receipts, {len(made)} lines")
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
