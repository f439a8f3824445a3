"""What surrounds a run: signals, other hosts, XLA, memory, hardware."""

# The environment variables that name the processes of a run; here, since setting them needs no JAX.
ADDRESS, COUNT, INDEX = 'JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID'
