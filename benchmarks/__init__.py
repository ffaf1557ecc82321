"""What rood costs, one script a claim, always as a ratio measured in one run."""
