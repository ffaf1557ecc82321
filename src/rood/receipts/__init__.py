"""Receipts: a result in one folder that anybody can check without trusting who made it.

docs/reference/receipt.md describes every file.
"""
