"""Audits: which detector, on which images, attacked how, with what result and how far to be believed."""
