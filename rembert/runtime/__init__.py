"""The environment of a run: signals, other hosts, XLA settings, memory, hardware."""

# Environment variables that identify the processes of a run; defined here, where importing needs no JAX.
ADDRESS, COUNT, INDEX = 'JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID'
