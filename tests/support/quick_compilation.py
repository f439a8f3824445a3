"""How tests compile: for minutes, to compute for seconds. XLA's and LLVM's optimisations cost more than they give."""

# XLA emits fusions through MLIR, or, three times as fast, directly as LLVM instructions; a program is one module.
QUICK_COMPILATION = {
  'JAX_DISABLE_MOST_OPTIMIZATIONS': 'true',
  'XLA_FLAGS': '--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1',
}
