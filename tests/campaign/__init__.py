"""The reliability campaign: whatever happens to a file, rood refuses it, repairs it or ends alike.

`make campaign` runs all of it in a sandbox; `make test` runs the fixed corpus and planted faults.
"""
