"""The environment variables that name the processes of a run; without JAX, for whoever only sets them."""

ADDRESS, COUNT, INDEX = 'JAX_COORDINATOR_ADDRESS', 'JAX_NUM_PROCESSES', 'JAX_PROCESS_ID'
