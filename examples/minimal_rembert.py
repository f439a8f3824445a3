"""RemBERT's masked-LM training step in plain JAX: pure functions over a dict of arrays.

It has no configuration, sharding, packing or checkpoints: a competent person writes this in an afternoon. It is also
the baseline that shows what those cost (`python -m benchmarks.run --only train_step`).

B batch · S positions · K masked positions · I input embedding · E output embedding · H hidden · F intermediate
L layers · N heads · D head size · V vocabulary · T token types
"""

import functools

import jax
import jax.numpy as jnp
import optax


def init_params(key, V, I, E, H, F, L, S, T=2):  # noqa: E741
  keys = iter(jax.random.split(key, 6 + 6 * L))
  normal = lambda *shape: 0.02 * jax.random.truncated_normal(next(keys), -2, 2, shape)
  linear = lambda n, m: {'w': normal(n, m), 'b': jnp.zeros(m)}
  norm = lambda n: {'scale': jnp.ones(n), 'bias': jnp.zeros(n)}
  layer = lambda: {name: linear(H, H) for name in 'qkvo'} | {
    'norm1': norm(H), 'up': linear(H, F), 'down': linear(F, H), 'norm2': norm(H),
  }  # fmt: skip
  return {
    'word': normal(V, I),
    'position': normal(S, I),
    'type': normal(T, I),
    'norm': norm(I),
    'project': linear(I, H),
    'layers': [layer() for _ in range(L)],
    'mlm': linear(H, E) | {'norm': norm(E), 'out': normal(V, E), 'out_bias': jnp.zeros(V)},
  }


def linear(p, x):
  return x @ p['w'] + p['b']


def layer_norm(p, x):
  x = x - x.mean(-1, keepdims=True)
  return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-12) * p['scale'] + p['bias']


def gelu(x):
  return jax.nn.gelu(x, approximate=False)


def attention(p, x_BxSxH, mask_BxS, N):
  B, S, H = x_BxSxH.shape
  q_BxSxNxD, k_BxSxNxD, v_BxSxNxD = (linear(p[name], x_BxSxH).reshape(B, S, N, H // N) for name in 'qkv')
  scores_BxNxSxS = jnp.einsum('bqnd,bknd->bnqk', q_BxSxNxD, k_BxSxNxD) / (H // N) ** 0.5
  weights_BxNxSxS = jax.nn.softmax(jnp.where(mask_BxS[:, None, None], scores_BxNxSxS, -1e9))
  return linear(p['o'], jnp.einsum('bnqk,bknd->bqnd', weights_BxNxSxS, v_BxSxNxD).reshape(B, S, H))


def loss_fn(params, batch, heads):
  ids_BxS = batch['input_ids']
  x_BxSxI = params['word'][ids_BxS] + params['position'][: ids_BxS.shape[1]] + params['type'][0]
  x_BxSxH = linear(params['project'], layer_norm(params['norm'], x_BxSxI))
  for p in params['layers']:
    x_BxSxH = layer_norm(p['norm1'], x_BxSxH + attention(p, x_BxSxH, batch['attention_mask'], heads))
    x_BxSxH = layer_norm(p['norm2'], x_BxSxH + linear(p['down'], gelu(linear(p['up'], x_BxSxH))))
  p = params['mlm']
  x_BxKxH = jnp.take_along_axis(x_BxSxH, batch['masked_positions'][..., None], axis=1)
  logits_BxKxV = layer_norm(p['norm'], gelu(linear(p, x_BxKxH))) @ p['out'].T + p['out_bias']
  losses_BxK = optax.softmax_cross_entropy_with_integer_labels(logits_BxKxV, batch['targets'])
  return (losses_BxK * batch['weights']).sum() / batch['weights'].sum()


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-4, eps=1e-6, weight_decay=0.01))


@functools.partial(jax.jit, static_argnames='heads', donate_argnums=(0, 1))
def train_step(params, opt_state, batch, heads):
  loss, grads = jax.value_and_grad(loss_fn)(params, batch, heads)
  updates, opt_state = optimizer.update(grads, opt_state, params)
  return optax.apply_updates(params, updates), opt_state, loss
