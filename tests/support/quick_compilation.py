"""How tests compile: for minutes, to compute for seconds. XLA's and LLVM's optimisations cost more than they give."""

import importlib.metadata

_FLAGS = ['--xla_cpu_parallel_codegen_split_count=1']  # a program is one module
if tuple(map(int, importlib.metadata.version('jaxlib').split('.')[:2])) < (0, 11):
  # XLA emits fusions through MLIR, or, three times as fast, directly as LLVM instructions. Later versions only do the
  # former, and abort at the flag.
  _FLAGS.append('--xla_cpu_use_fusion_emitters=false')

QUICK_COMPILATION = {'JAX_DISABLE_MOST_OPTIMIZATIONS': 'true', 'XLA_FLAGS': ' '.join(_FLAGS)}
