"""The matmuls of a step or of a forward pass alone, by torch and by XLA: less time than the faster one is not possible.

Operands are random and stay where they are; a product with the same sizes as another is computed again. Bfloat16
products have a bfloat16 result in torch, and a float32 one in XLA, whose CPU backend is fast in that form only
(`rembert.kernels.cpu`).
"""

import collections
from collections.abc import Iterable, Mapping

from benchmarks.interleaved import Candidate, Run
from rembert.model.config import RemBertConfig

Sizes = tuple[int, int, int, int]  # (B, M, K, N): B products of [M, K] and [K, N]


def of_forward(
  config: RemBertConfig, rows: int, length: int, *, last_queries: int | None = None, slots: int = 0
) -> collections.Counter[Sizes]:
  """Matmuls of a forward pass of `rows` sequences, as `rembert.aot.flops.forward_flops_per_row` counts their FLOPs."""
  hidden, heads, ffn = config.hidden_size, config.num_attention_heads, config.intermediate_size
  found: collections.Counter[Sizes] = collections.Counter()
  for layer in range(config.num_hidden_layers):
    is_trimmed = last_queries is not None and layer == config.num_hidden_layers - 1
    queries = last_queries if is_trimmed and last_queries is not None else length
    projections = [(length, 2 * hidden), (queries, hidden)] if is_trimmed else [(length, 3 * hidden)]
    found.update((1, rows * count, hidden, size) for count, size in projections)
    found[rows * heads, queries, config.head_dim, length] += 1  # scores
    found[rows * heads, queries, length, config.head_dim] += 1  # means of values
    found.update((1, rows * queries, *sizes) for sizes in ((hidden, hidden), (hidden, ffn), (ffn, hidden)))
  if config.projects_embeddings:
    found[1, rows * length, config.input_embedding_size, hidden] += 1
  if slots:
    found[1, rows * slots, hidden, config.output_embedding_size] += 1
    found[1, rows * slots, config.output_embedding_size, config.vocab_size] += 1
  return found


def with_backward(forward: Mapping[Sizes, int]) -> collections.Counter[Sizes]:
  """Those of a training step: for each product also the gradients of its two factors."""
  found = collections.Counter(forward)
  for (batch, m, k, n), count in forward.items():
    found[batch, m, n, k] += count
    found[batch, k, m, n] += count
  return found


def _shapes(sizes: Sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """[B, M, K] and [B, K, N], without B if it is 1."""
  batch, m, k, n = sizes
  outer = (batch,) if batch > 1 else ()
  return (*outer, m, k), (*outer, k, n)


def prepare_torch(products: Mapping[Sizes, int], dtype: str, platform: str = 'cpu') -> Run:
  """`torch.matmul` into memory that is there."""
  import torch

  torch.manual_seed(0)
  made = []
  for sizes, count in products.items():
    lhs, rhs = (torch.randn(shape, dtype=getattr(torch, dtype), device=platform) for shape in _shapes(sizes))
    made.append((lhs, rhs, lhs @ rhs, count))

  def run() -> None:
    with torch.inference_mode():
      for lhs, rhs, result, count in made:
        for _ in range(count):
          torch.matmul(lhs, rhs, out=result)
    if platform == 'cuda':
      torch.cuda.synchronize()

  return run


def prepare_xla(products: Mapping[Sizes, int], dtype: str) -> Run:
  """`jnp.matmul`, compiled for each size."""
  import jax
  import jax.numpy as jnp

  multiply = jax.jit(lambda lhs, rhs: jnp.matmul(lhs, rhs, preferred_element_type=jnp.float32))
  made = [
    (*(jax.random.normal(jax.random.key(0), shape, dtype) for shape in _shapes(sizes)), count)
    for sizes, count in products.items()
  ]

  def run() -> None:
    for lhs, rhs, count in made:
      for _ in range(count):
        multiply(lhs, rhs).block_until_ready()

  return run


def candidates(
  products: Mapping[Sizes, int], dtype: str, work: Mapping[str, float], platform: str = 'cpu'
) -> Iterable[Candidate]:
  """One for each library, with the `work` of the step or pass that the products are part of.

  On a GPU both libraries call cuBLAS, and torch's stands for both.
  """
  yield Candidate('(matmuls alone, torch)', prepare_torch, (dict(products), dtype, platform), work)
  if platform == 'cpu':
    yield Candidate('(matmuls alone, XLA)', prepare_xla, (dict(products), dtype), work)
