"""Operations that a traced program really does, recomputation and padding included: the other half of `flops`.

What a step costs beyond its model (`flops.train_flops_per_row`) depends on what the backward pass computes again. The
traced program has it written out, whatever the policy is called.
"""

import math

from jax.extend import core


def traced_flops(jaxpr: core.Jaxpr) -> int:
  """Multiply-adds of all matrix products over all devices, 2 operations each; a loop's body as often as it runs.

  Of several branches the dearest counts. A kernel's body counts once for each cell of its grid. A product with a vector
  is no matrix product: the gradient of a bias is a sum, written as one.
  """
  total = 0
  for equation in jaxpr.eqns:
    name, params = equation.primitive.name, equation.params
    if name == 'dot_general':
      total += _product_flops(equation)
    elif name == 'cond':
      total += max(traced_flops(branch.jaxpr) for branch in params['branches'])
    elif name == 'pallas_call':
      total += math.prod(params['grid_mapping'].grid) * traced_flops(params['jaxpr'])
    else:
      times = params['mesh'].size if name == 'shard_map' else params.get('length', 1) if name == 'scan' else 1
      total += times * sum(traced_flops(inner) for inner in _inner(params))
  return total


def _product_flops(equation) -> int:
  if any(operand.aval.ndim < 2 for operand in equation.invars):
    return 0
  (contracted, _), _ = equation.params['dimension_numbers']
  depth = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
  return 2 * depth * math.prod(equation.outvars[0].aval.shape)


def _inner(params: dict):
  for value in params.values():
    inner = getattr(value, 'jaxpr', value)
    if hasattr(inner, 'eqns'):
      yield inner
