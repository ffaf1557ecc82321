"""i-ODIN against plain loops."""

import numpy as np
import references as ref
from references import close

from rood.detectors import IODIN, MSP


def test_iodin_steps_in_the_one_pixel_value_that_matters_most(double):
    x = double.inside[:2]
    logits, eta, temperature = ref.array_logits(double.model), 0.02, 10.0
    want = []
    for image in x.numpy():
        confidence = lambda v: [ref.max_probability(z, temperature) for z in logits(v)]
        slope = ref.slopes(lambda v, c=confidence: np.log(c(v)), image)
        place = np.unravel_index(np.abs(slope).argmax(), slope.shape)
        moved = image.copy()
        moved[place] += eta * np.sign(slope[place])
        want.append(ref.tempered_margin(logits(moved[None])[0], temperature))
    close(IODIN(double.model, temperature=temperature, eta=eta).score(x), want, rtol=1e-6)


def test_iodin_without_a_step_is_msp(double):
    x = double.inside[:5]
    d = IODIN(double.model, temperature=1.0, eta=0.0)
    close(d.score(x), MSP(double.model).score(x).numpy(), rtol=1e-12)
