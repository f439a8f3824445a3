"""Training: losses, optimizer, sharding, the update step and the training loop."""
