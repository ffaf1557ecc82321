"""rood's detectors beside other libraries' on the same network and images; `make peers` runs it."""
