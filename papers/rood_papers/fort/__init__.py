"""Fort, *Adversarial vulnerability of powerful near out-of-distribution detection*, 2022.

Free sign steps on the OOD images, read at 1/255 (`rood.analysis.trajectory`), and beside them our
suite within 1/255, which finds more: it projects, and no trajectory does. Systems, tables and
figures are data, in fort.toml.
"""

from rood_papers.fort import claims, figures, tables
from rood_papers.framework.paper import experiments

EXPERIMENTS = experiments("fort", vars(tables) | vars(figures), vars(claims))
