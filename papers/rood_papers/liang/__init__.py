"""Liang et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*, 2020.

OOD images take the code of an ID image within an L2 ball. A perfect match ends at an AUROC of one
half, not at 0: beside each match stands the attack that lowers the score itself. Systems, tables
and figures are data, in liang.toml.
"""

from rood_papers.framework.paper import experiments
from rood_papers.liang import claims, figures, tables, trained

PARTS = {
    "lines": tables.lines,
    "targets": tables.targets,
    "errors": figures.errors,
    "absent": figures.absent,
    "scatter": figures.scatter,
    "histograms": figures.histograms,
    "losses": figures.losses,
    "galleries": figures.galleries,
    "dimensions": figures.forgotten,
    "presets": figures.presets,
    "text": figures.text,
    "systems": trained.systems,
    "certificate": trained.certificate,
    "other_images": trained.other_images,
    "round_trip": trained.round_trip,
    "samples": trained.samples,
}
CLAIMS = {
    "tables": claims.tables,
    "unmoved": claims.unmoved,
    "most_are_met": claims.most_are_met,
    "most_are_close": claims.most_are_close,
    "closest": claims.closest,
    "systems": claims.systems,
    "certificate": claims.certificate,
}
EXPERIMENTS = experiments("liang", PARTS, CLAIMS)
