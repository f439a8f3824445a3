"""Several processes, one run: how they join, what they agree on, and how they learn that one of them is gone."""
