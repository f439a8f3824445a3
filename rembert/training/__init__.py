"""From batches to a trained state: losses, optimizer, sharding, step, loop, checkpoints, preemption, tracking."""
