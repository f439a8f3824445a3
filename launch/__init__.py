"""Running on machines: TPU VMs, clusters, containers."""
