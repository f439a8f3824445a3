"""The cost of a step before it runs: operations, memory traffic, collectives, on devices that need not be here."""
