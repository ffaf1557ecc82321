"""Looks behind the numbers: why a detector or an attack does what it does."""
