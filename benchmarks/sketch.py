"""RemBERT's masked-LM step as a competent person writes it in an afternoon: pure functions and a dict of arrays.

It has no configuration, no sharding, no packing and no checkpoints. It is here to show what those cost.
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


def attention(p, x, mask, heads):
  B, S, H = x.shape
  q, k, v = (linear(p[name], x).reshape(B, S, heads, H // heads) for name in 'qkv')
  scores = jnp.einsum('bqnd,bknd->bnqk', q, k) / (H // heads) ** 0.5
  weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -1e9))
  return linear(p['o'], jnp.einsum('bnqk,bknd->bqnd', weights, v).reshape(B, S, H))


def loss_fn(params, batch, heads):
  ids = batch['input_ids']
  x = params['word'][ids] + params['position'][: ids.shape[1]] + params['type'][0]
  x = linear(params['project'], layer_norm(params['norm'], x))
  for p in params['layers']:
    x = layer_norm(p['norm1'], x + attention(p, x, batch['attention_mask'], heads))
    x = layer_norm(p['norm2'], x + linear(p['down'], jax.nn.gelu(linear(p['up'], x), approximate=False)))
  p = params['mlm']
  x = jnp.take_along_axis(x, batch['masked_positions'][..., None], axis=1)
  logits = layer_norm(p['norm'], jax.nn.gelu(linear(p, x), approximate=False)) @ p['out'].T + p['out_bias']
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch['targets'])
  return (losses * batch['weights']).sum() / batch['weights'].sum()


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(2e-4, eps=1e-6, weight_decay=0.01))


@functools.partial(jax.jit, static_argnames='heads', donate_argnums=(0, 1))
def train_step(params, opt_state, batch, heads):
  loss, grads = jax.value_and_grad(loss_fn)(params, batch, heads)
  updates, opt_state = optimizer.update(grads, opt_state, params)
  return optax.apply_updates(params, updates), opt_state, loss
