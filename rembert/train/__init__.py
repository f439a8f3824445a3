"""From batches to a trained state: losses, optimizer, sharding, the update, and the loop around it."""
