"""What rood costs, one script per claim, always as a ratio measured in one run."""
