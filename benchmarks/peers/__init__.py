"""rood's detectors and PGD beside other libraries', on the same networks: `make peers`."""
