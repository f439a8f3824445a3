"""The old name of `python -m benchmarks.kernel_trace`, accepted until version 0.2.0."""

import sys

from benchmarks.kernel_trace import main

if __name__ == '__main__':
  print('benchmarks.kernels is now benchmarks.kernel_trace', file=sys.stderr)
  main()
