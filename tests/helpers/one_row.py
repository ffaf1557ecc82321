"""A row of an attacked AUROC that is believed."""

from rood.evaluation.rows import Row

ROW = Row(
    model="net",
    detector="msp",
    dataset="svhn",
    scenario="pgd linf:0.1",
    side="both",
    metric="auroc",
    value=0.71,
    low=0.65,
    high=0.77,
    n_in=100,
    n_out=100,
    seed=0,
    verdict="pass",
)
