"""Launchers: TPU VMs, clusters, sweeps. Guides: docs/guides."""
