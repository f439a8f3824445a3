"""What surrounds a run: signals, other hosts, the compiler, memory, hardware."""
