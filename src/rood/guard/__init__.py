"""The guard: a classifier and a calibrated detector in one folder, which accepts or rejects."""
