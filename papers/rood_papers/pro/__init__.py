"""PRO: Chen et al., *Leveraging Perturbation Robustness to Enhance Out-of-Distribution Detection*.

CVPR 2025, arXiv:2503.18784. Its claims are tested one by one, on networks of our own.
"""

from rood_papers.framework.paper import experiments
from rood_papers.pro import claims, figures, tables

EXPERIMENTS = experiments("pro", vars(tables) | vars(figures), vars(claims))
