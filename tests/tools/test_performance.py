"""docs/evidence/performance.md from the rows of the benchmarks."""

from benchmarks import growth, measure
from benchmarks.measure import Claim
from tools import performance


def claim(**more):
    given = {"name": "a / b", "value": 1.2, "bar": 1.1, "runs": 3, "spread": 0.1, "detail": "here"}
    return Claim(**given | more)


def test_the_page_shows_every_bar_and_draws_what_grows(tmp_path, monkeypatch):
    assert "Not measured yet" in performance.page(tmp_path)
    monkeypatch.setattr(measure, "RESULTS", tmp_path)
    fits = [
        {"library": lib, "detector": "knn", "images": n, "seconds": 1.0, "megabytes": m * n}
        for n in (10, 20)
        for lib, m in (("rood", 1.0), ("pytorch-ood", 3.0))
    ]
    sizes = [growth.Size(steps=n)._asdict() for n in (10, 20)]
    costs = {"seconds": 2.0, "cpu_seconds": 1.5, "forwards": 7, "backwards": 5}
    bank = {"bank": 1_200_000, "features": 2048, "peak_gb": 9.9}
    rate = {"network": "ViT-B/16", "batch": 64, "steps": 20, "rood": 610.0, "bare": 640.0}
    both = [{"library": "rood", "fit": 1.0}, {"library": "pytorch-ood", "fit": 5.4}]
    measure.report("fitting", [claim(points=tuple(fits))])
    audits = [{"images": n, "seconds": 1.0, "megabytes": 40.0 + n} for n in (10, 20)]
    measure.report("auditing", [claim(points=tuple(audits))])
    measure.report("growth", [claim(name="steps", points=tuple(s | costs for s in sizes))])
    measure.report("gpu", [claim(at_least=True, points=(rate,)), claim(points=(bank,))])
    measure.report("beside-pytorch-ood", [claim(points=tuple(both))])
    page = performance.page(tmp_path)
    assert "**1 of 6 limits hold.**" in page
    assert "| `knn` | pytorch-ood | 30 MB, 1.0 s | 60 MB, 1.0 s |" in page
    assert "| ViT-B/16 | 64 | 20 | 610 | 640 |" in page
    assert "| 1,200,000 | 2,048 | 9.9 |" in page
