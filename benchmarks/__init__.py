"""Speed and memory of this project, compared with the usual alternatives: `python -m benchmarks.run --help`."""
