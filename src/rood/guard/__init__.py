"""Guards: a classifier and a calibrated detector that accept or reject images."""
