"""KL matching against plain loops."""

import references as ref
import torch
from references import close

from rood.detectors import (
    KLMatching,
)


def test_kl_matching_equals_its_reference(double, x):
    seen = [z for batch, _ in double.train for z in ref.logits_of(double.model, batch)]
    d = KLMatching(double.model).fit([(b, torch.zeros_like(y)) for b, y in double.train])
    close(d.score(x), ref.kl_matching(ref.logits_of(double.model, x), seen), rtol=1e-7)


def test_kl_matching_takes_one_hot_for_a_class_never_predicted(double):
    seen = ref.random_logits(30, 3)
    seen[:, 2] = seen.min() - 1
    queries = ref.random_logits(20, 3)[::-1]
    d = ref.fitted_on(KLMatching(double.model), ref.of_logits(seen), torch.zeros(30).long())
    want = ref.kl_matching([list(q) for q in queries], [list(z) for z in seen])
    close(d.score_outputs(ref.of_logits(queries.copy())), want, rtol=1e-9)
