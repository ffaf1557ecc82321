"""Training: objectives, one visible loop, and the recipes of the networks that are shipped."""
