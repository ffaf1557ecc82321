"""Numerics that detectors and objectives share: softmax, covariances, streaming statistics."""
