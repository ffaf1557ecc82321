"""ALOE: Chen et al., *Robust Out-of-distribution Detection for Neural Networks*, arXiv:2003.09711.

Eleven detectors under the paper's own attacks, as written and as coded; in `aloe/adaptive` nine of
them (seven for CIFAR-100), each attacked through its own score.
"""

from rood_papers.aloe import claims, tables
from rood_papers.framework.paper import experiments

EXPERIMENTS = experiments("aloe", vars(tables), vars(claims))
