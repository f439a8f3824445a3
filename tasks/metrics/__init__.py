"""Metrics of the tasks, as their own official scripts define them. Each is a function of all labels and predictions."""
