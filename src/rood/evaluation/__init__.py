"""Audits: attack detectors, measure them, and check whether the attack can be believed."""
