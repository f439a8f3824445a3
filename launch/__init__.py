"""Running on machines: TPU VMs, clusters, containers. Guides: docs/guides."""
