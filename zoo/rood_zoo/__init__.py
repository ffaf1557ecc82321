"""Networks that were trained with rood: weights and cards, found by `rood.zoo`."""
