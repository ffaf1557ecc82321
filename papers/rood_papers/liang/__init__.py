"""Liang et al., *An Algorithm for Out-Of-Distribution Attack to Neural Network Encoder*, 2020.

OOD images take the code of an ID image within an L2 ball. A perfect match ends at an AUROC of one
half, not at 0: beside each match stands the attack that lowers the score itself. Systems, tables
and figures are data, in liang.toml.
"""

from rood_papers.framework.paper import experiments
from rood_papers.liang import claims, figures, tables, trained

PARTS = vars(tables) | vars(figures) | vars(trained)
EXPERIMENTS = experiments("liang", PARTS, vars(claims))
