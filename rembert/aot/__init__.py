"""Cost of a step, from ahead-of-time compilation for a target topology: FLOPs, memory traffic, collectives."""
