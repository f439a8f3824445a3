"""What this project costs, beside what one would otherwise run. `python -m benchmarks.run --help` says more."""
