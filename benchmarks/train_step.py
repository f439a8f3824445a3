"""Runs one update (forward, backward, clipping by global norm, AdamW), or only the MLM head and its loss.

All candidates of a table have the same model, random weights and batch.

`train_step`: masked language modelling. On a CPU in float32 the candidates are this project, Hugging Face's torch
RemBERT as its users train it, and plain JAX (`examples/minimal_rembert.py`); in bfloat16 this project, and torch
under autocast. Torch runs eagerly and compiled by `torch.compile`, which needs a C++ compiler on a CPU; its AdamW is
the fused one. The large settings need an NVIDIA GPU.

`finetuning`: sentence pairs with three labels, as in XNLI, and answer spans, as in SQuAD, against Hugging Face's
`RemBertForSequenceClassification` and `RemBertForQuestionAnswering`. Dropout is the default of fine-tuning: 0.1
before the classifier, and none elsewhere. Sequences are full; shorter ones would be padded to the same length by
both, and take as long. With padding the losses of spans would differ: in Hugging Face, the softmax over positions
includes padding. This project's AdamW is BERT's, without bias correction and without decay of LayerNorms and biases;
torch's is torch's. Both take one pass over the parameters.

`head`: the head and its loss, forward and backward, with small to very large vocabularies: hidden states in, the loss
and the gradients of states and parameters out, without encoder and update. This project runs in three ways
(`Execution.loss_chunk`): in chunks of positions, as in training; with all logits at masked positions; and with logits
at every position. The comparison is with Hugging Face's `RemBertOnlyMLMHead` and torch's cross-entropy: at every
position, as in `RemBertForMaskedLM`, and only at masked positions.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable

import numpy as np

from benchmarks import matmuls, settings
from benchmarks.interleaved import OURS, Benchmark, Candidate, Measurements, Run, Unavailable
from benchmarks.settings import BASE, LARGE, SMALL, USEFUL, Setting

# Real runs repeat training steps. On a CPU, torch's first dozen are slower.
STEPS = {'warm_up_runs': 8, 'runs_per_turn': 3}
GPU_MEMORY, PEAK = 'GB of the GPU', 'TFLOP/s at most'  # facts
GPU_FLAGS = ('--xla_allow_excess_precision=false',)  # as in gin/hardware/h200.gin

IN_FLOAT32, SKETCH = '… in float32', 'plain JAX sketch'
TORCH, TORCH_COMPILED = 'torch, float32', 'torch, float32, compiled'
TORCH_BF16 = ('torch, bfloat16 autocast', 'torch, bfloat16, compiled')

# Not all candidates of a large model at once, which would need more than 24 GB, or the memory of a GPU; with 64
# sequences, torch's logits at all positions alone would.
PRETRAINING = {
  'small': Setting(SMALL, rows=16, length=128, slots=20),
  'base': Setting(BASE, rows=2, length=512, slots=77, baselines=(SKETCH, TORCH)),
  'base_compiled': Setting(BASE, rows=2, length=512, slots=77, baselines=(TORCH_COMPILED,)),
  'small_bfloat16': Setting(SMALL, rows=16, length=128, slots=20, dtype='bfloat16'),
  'base_bfloat16': Setting(BASE, rows=2, length=512, slots=77, dtype='bfloat16', baselines=TORCH_BF16),
  'large': Setting(LARGE, 16, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=TORCH_BF16[:1]),
  'large_compiled': Setting(LARGE, 16, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=TORCH_BF16[1:]),
  'large64': Setting(LARGE, 64, 512, slots=77, dtype='bfloat16', platform='cuda', baselines=(OURS,)),
}
FINETUNING = {
  'xnli': Setting(SMALL, rows=32, length=128, head='classification', num_labels=3),
  'squad': Setting(SMALL, rows=8, length=384, head='qa'),
  'xnli_bfloat16': Setting(SMALL, rows=32, length=128, head='classification', num_labels=3, dtype='bfloat16'),
  'squad_bfloat16': Setting(SMALL, rows=8, length=384, head='qa', dtype='bfloat16'),
  'large_xnli': Setting(LARGE, 32, 128, head='classification', num_labels=3, dtype='bfloat16', platform='cuda'),
  'large_squad': Setting(LARGE, 32, 384, head='qa', dtype='bfloat16', platform='cuda'),
}


def masked_batch(setting: Setting) -> dict[str, np.ndarray]:
  """Full sequences for masked language modelling; `labels` are the targets in Hugging Face's form, −100 elsewhere."""
  random = np.random.default_rng(0)
  rows, length, slots, vocabulary = setting.rows, setting.length, setting.slots, setting.config.vocab_size
  positions = np.stack([np.sort(random.choice(length, slots, replace=False)) for _ in range(rows)])
  targets = random.integers(settings.FIRST_TOKEN, vocabulary, (rows, slots))
  labels = np.full((rows, length), -100)
  np.put_along_axis(labels, positions, targets, axis=1)
  return {
    'input_ids': random.integers(settings.FIRST_TOKEN, vocabulary, (rows, length)).astype(np.int32),
    'attention_mask': np.ones((rows, length), np.int32),
    'masked_positions': positions.astype(np.int32),
    'targets': targets.astype(np.int32),
    'weights': np.ones((rows, slots), np.float32),
    'labels': labels,
  }


def labelled_batch(setting: Setting) -> dict[str, np.ndarray]:
  """Sequences of two texts, as in `rembert.data.finetune_batches`; labels [B], or first and last position [B, 2]."""
  random, (rows, length) = np.random.default_rng(0), (setting.rows, setting.length)
  second_text = random.integers(1, length, (rows, 1))  # its first position
  spans = np.sort(random.integers(0, length, (rows, 2)))
  return {
    'input_ids': random.integers(settings.FIRST_TOKEN, setting.config.vocab_size, (rows, length)).astype(np.int32),
    'token_type_ids': (np.arange(length) >= second_text).astype(np.int32),
    'segment_ids': np.ones((rows, length), np.int32),
    'labels': (random.integers(0, setting.num_labels, rows) if setting.num_labels else spans).astype(np.int32),
  }


# --- updates: each candidate returns a function that makes one step and returns its loss ------------------------------


def prepare_pretraining(setting: Setting) -> Run:
  """The pre-training step of this project, on packed sequences."""
  import jax

  from rembert.train import sharding, state, step

  mesh = settings.start_jax(setting)
  trainable = state.masked_lm(setting.config, setting.execution, settings.our_optimizer(setting.learning_rate), mesh)
  drawn = masked_batch(setting)
  packed = {name: drawn[name] for name in ('input_ids', 'masked_positions', 'targets', 'weights')} | {
    'segment_ids': drawn['attention_mask'],
    'position_ids': np.tile(np.arange(setting.length, dtype=np.int32), (setting.rows, 1)),
    'language': np.zeros(setting.rows, np.int32),
  }
  with jax.set_mesh(mesh):
    batch = sharding.to_device(packed, mesh)
    return _our_steps(step.make_train_step(trainable), trainable.init(0), batch, mesh)


def prepare_finetuning(setting: Setting, folder: pathlib.Path) -> Run:
  """The fine-tuning step of this project."""
  import jax

  from rembert.checkpoint.initialize import open_initial
  from rembert.model.heads import build_model
  from rembert.train import sharding, state, step

  mesh = settings.start_jax(setting)
  config, head, num_labels, execution = setting.config, setting.head, setting.num_labels, setting.execution
  build = lambda rngs: build_model(head, config, execution, num_labels=num_labels, rngs=rngs)
  trainable = state.trainable(build, settings.our_optimizer(setting.learning_rate), mesh)
  initial = open_initial(folder, 'all', config, head=head, num_labels=num_labels)
  dropout_seed = 0 if config.classifier_dropout_prob else None
  with jax.set_mesh(mesh):
    batch = sharding.to_device(labelled_batch(setting), mesh)
    train_step = step.make_train_step(trainable, sums_of=step.head_sums(head))
    return _our_steps(train_step, initial.put_into(trainable.init(0)), batch, mesh, dropout_seed)


def _our_steps(step: Callable, state, batch, mesh, dropout_seed: int | None = None) -> Callable[[], dict[str, float]]:
  import jax

  from rembert.runtime.hardware import chip_of

  device = mesh.devices.flat[0]

  def run() -> dict[str, float]:
    nonlocal state
    with jax.set_mesh(mesh):
      state, metrics = jax.block_until_ready(step(state, batch, dropout_seed))
    facts = {'loss': float(metrics.sums.loss / metrics.sums.weight)}
    if memory := device.memory_stats():
      facts[GPU_MEMORY] = memory['peak_bytes_in_use'] / 1e9
    if chip := chip_of(device.device_kind):
      facts[PEAK] = chip[1].bf16_flops / 1e12
    return facts

  return run


def prepare_sketch(setting: Setting) -> Run:
  """The step of `examples/minimal_rembert.py`."""
  import jax

  from examples import minimal_rembert

  config = setting.config
  params = minimal_rembert.init_params(
    jax.random.key(0),
    V=config.vocab_size,
    I=config.input_embedding_size,
    E=config.output_embedding_size,
    H=config.hidden_size,
    F=config.intermediate_size,
    L=config.num_hidden_layers,
    S=config.max_position_embeddings,
  )
  batch = {name: jax.numpy.asarray(array) for name, array in masked_batch(setting).items()}
  opt_state = minimal_rembert.optimizer.init(params)

  def run() -> dict[str, float]:
    nonlocal params, opt_state
    step = minimal_rembert.train_step(params, opt_state, batch, heads=config.num_attention_heads)
    params, opt_state, loss = jax.block_until_ready(step)
    return {'loss': float(loss)}

  return run


def prepare_torch(setting: Setting, folder: pathlib.Path | None = None, is_compiled: bool = False) -> Run:
  """Hugging Face's model with labels, and its Trainer's fused `AdamW`; weights are random, or from a directory."""
  import torch
  import transformers

  torch.manual_seed(0)
  torch.backends.cuda.matmul.allow_tf32 = True
  arrays = masked_batch(setting) if setting.head == 'mlm' else labelled_batch(setting)
  batch = {name: torch.tensor(array, dtype=torch.long, device=setting.platform) for name, array in arrays.items()}
  labels = batch['labels']
  if setting.head == 'mlm':
    model = transformers.RemBertForMaskedLM(settings.torch_config(setting.config))
    inputs = {name: batch[name] for name in ('input_ids', 'attention_mask', 'labels')}
  else:
    inputs = {'input_ids': batch['input_ids'], 'token_type_ids': batch['token_type_ids']}
    inputs['attention_mask'] = batch['segment_ids']
    if setting.head == 'classification':
      model = transformers.RemBertForSequenceClassification.from_pretrained(folder)
      inputs |= {'labels': labels}
    else:
      model = transformers.RemBertForQuestionAnswering.from_pretrained(folder)
      inputs |= {'start_positions': labels[:, 0], 'end_positions': labels[:, 1]}
  model = model.to(setting.platform).train()
  forward, parameters = torch.compile(model) if is_compiled else model, list(model.parameters())
  optimizer = torch.optim.AdamW(parameters, setting.learning_rate, fused=True, **settings.ADAMW)

  def run() -> dict[str, float]:
    optimizer.zero_grad()
    with torch.autocast(setting.platform, torch.bfloat16, enabled=setting.dtype == 'bfloat16'):
      loss = forward(**inputs).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, settings.CLIP_NORM)
    optimizer.step()
    facts = {'loss': loss.item()}  # waits for the device
    if setting.platform == 'cuda':
      facts[GPU_MEMORY] = torch.cuda.max_memory_allocated() / 1e9
    return facts

  return run


def matmul_candidates(setting: Setting) -> list[Candidate]:
  """The matmuls of the step alone."""
  forward = matmuls.of_forward(
    setting.config, setting.rows, setting.length, last_queries=setting.last_queries, slots=setting.slots
  )
  return [*matmuls.candidates(matmuls.with_backward(forward), setting.dtype, setting.work, setting.platform)]


def environment(setting: Setting) -> dict[str, str]:
  """Of this project's process: candidates share one GPU, so none may preallocate all of its memory."""
  if setting.platform == 'cpu':
    return {}
  if not pathlib.Path('/dev/nvidia0').exists():
    raise Unavailable('no NVIDIA GPU')
  return {'XLA_PYTHON_CLIENT_PREALLOCATE': 'false', 'XLA_FLAGS': ' '.join(GPU_FLAGS)}


def pretraining_candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  del scratch
  candidate, own = functools.partial(Candidate, work=setting.work), environment(setting)
  if setting.dtype == 'bfloat16':
    eager, compiled = TORCH_BF16
    others = [candidate(IN_FLOAT32, prepare_pretraining, (dataclasses.replace(setting, dtype='float32'),))]
  else:
    eager, compiled = TORCH, TORCH_COMPILED
    others = [candidate(SKETCH, prepare_sketch, (setting,))]
  others += [candidate(eager, prepare_torch, (setting,)), candidate(compiled, prepare_torch, (setting, None, True))]
  chosen = [each for each in others if not setting.baselines or each.name in setting.baselines]
  return [candidate(OURS, prepare_pretraining, (setting,), environment=own), *chosen, *matmul_candidates(setting)]


def finetuning_candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  """The candidates, this project first; all start from the same weights."""
  folder, own = scratch / 'model', environment(setting)
  settings.write_random_model(folder, setting.config, setting.head, num_labels=setting.num_labels)
  candidate = functools.partial(Candidate, arguments=(setting, folder), work=setting.work)
  torch = TORCH if setting.dtype == 'float32' else TORCH_BF16[0]
  ours, theirs = candidate(OURS, prepare_finetuning, environment=own), candidate(torch, prepare_torch)
  return [ours, theirs, *matmul_candidates(setting)]


def utilization(setting: Setting, measured: Measurements) -> str:
  """On a GPU, the MFU: the fraction of its peak FLOP/s in useful matmuls."""
  peak = measured[OURS].facts.get(PEAK)
  if not peak:
    return ''
  useful = setting.work[USEFUL] / 1e3
  shares = [f'{useful / each.median / peak:.1%} {name}' for name, each in measured.items() if each.seconds]
  return f'Of {peak:g} TFLOP/s, useful: ' + ', '.join(shares)


# --- the head: each candidate returns a function that runs forward and backward once, and returns the loss ------------

# Names of the three ways of this project, and of two of torch.
WAYS = {'chunked': OURS, 'gathered': '… all masked logits', 'dense': '… logits everywhere'}
TORCH_EVERYWHERE, TORCH_MASKED = 'torch, everywhere', 'torch, masked positions'


def head_setting(vocab_size: int, rows: int = 8, length: int = 128, slots: int = 20) -> Setting:
  """The sizes of the small setting, without layers."""
  return Setting(dataclasses.replace(SMALL, vocab_size=vocab_size, num_hidden_layers=0), rows, length, slots)


def head_problem(setting: Setting) -> dict[str, np.ndarray]:
  """A random batch with hidden states instead of tokens, and weights of the head."""
  random, config = np.random.default_rng(1), setting.config
  normal = lambda *shape: (0.02 * random.standard_normal(shape, np.float32)).astype(np.float32)
  return masked_batch(setting) | {
    'states': random.standard_normal((setting.rows, setting.length, config.hidden_size), np.float32),
    'transform': normal(config.hidden_size, config.output_embedding_size),
    'output_embedding': normal(config.vocab_size, config.output_embedding_size),
  }


def prepare_head(setting: Setting, way: str) -> Run:
  """The head of pre-training, in one of the `WAYS`."""
  import jax
  import jax.numpy as jnp
  from flax import nnx

  from rembert.model.config import Execution
  from rembert.model.heads import MlmHead
  from rembert.train.chunked_loss import chunked_mlm_sums
  from rembert.train.losses import mlm_row_sums

  settings.start_jax(setting)
  given = head_problem(setting)
  graphdef, state = nnx.split(MlmHead(setting.config, Execution(), rngs=nnx.Rngs(0)))
  params = nnx.to_pure_dict(state)
  params['transform']['kernel'] = jnp.asarray(given['transform'])
  vocab_size = setting.config.vocab_size
  padding = setting.config.padded_vocab_size - vocab_size
  params['output_embedding'] = jnp.pad(given['output_embedding'], ((0, padding), (0, 0)))
  word = jnp.zeros((1, 1))  # unused: the head has an output embedding
  positions, targets, weights = given['masked_positions'], given['targets'], given['weights']
  if way == 'dense':
    positions, targets, weights = None, np.maximum(given['labels'], 0), (given['labels'] >= 0).astype(np.float32)

  def mean_loss(params, states_BxSxH, positions, targets, weights):
    head = nnx.merge(graphdef, params)
    if way == 'chunked':
      x_BxKxE, table_VxE = head.hidden_for_logits(states_BxSxH, positions), head.table(word)
      chunk = Execution().loss_chunk
      sums = chunked_mlm_sums(x_BxKxE, table_VxE, head.bias[...], targets, weights, vocab_size=vocab_size, chunk=chunk)
    else:
      logits = head(states_BxSxH, positions, word_embedding_VxI=word)
      sums = jax.tree.map(jnp.sum, mlm_row_sums(logits, targets, weights))
    return sums.loss / sums.weight

  step = jax.jit(jax.value_and_grad(mean_loss, argnums=(0, 1)))
  arguments = jax.device_put((params, given['states'], positions, targets, weights))

  def run() -> dict[str, float]:
    return {'loss': float(jax.block_until_ready(step(*arguments))[0])}

  return run


def prepare_torch_head(setting: Setting, only_masked: bool) -> Run:
  """Hugging Face's head."""
  import torch
  from transformers.models.rembert.modeling_rembert import RemBertOnlyMLMHead

  head, given = RemBertOnlyMLMHead(settings.torch_config(setting.config)), head_problem(setting)
  parts = head.predictions
  with torch.no_grad():
    parts.dense.weight.copy_(torch.from_numpy(given['transform'].T))
    parts.decoder.weight.copy_(torch.from_numpy(given['output_embedding']))
    parts.dense.bias.zero_()
    parts.decoder.bias.zero_()
  states, labels = torch.from_numpy(given['states']).requires_grad_(), torch.from_numpy(given['labels'])

  def run() -> dict[str, float]:
    head.zero_grad()
    states.grad = None
    is_masked = labels != -100
    picked, targets = (states[is_masked], labels[is_masked]) if only_masked else (states, labels)
    loss = torch.nn.functional.cross_entropy(head(picked).reshape(-1, setting.config.vocab_size), targets.reshape(-1))
    loss.backward()
    return {'loss': loss.item()}

  return run


def head_candidates(setting: Setting, scratch: pathlib.Path) -> list[Candidate]:
  del scratch
  config, predictions = setting.config, setting.rows * setting.slots
  products = config.output_embedding_size * (config.hidden_size + config.vocab_size)
  work = {'predictions': predictions, USEFUL: 3 * 2 * predictions * products / 1e9}
  candidate = functools.partial(Candidate, work=work)
  return [
    *(candidate(name, prepare_head, (setting, way)) for way, name in WAYS.items()),
    candidate(TORCH_EVERYWHERE, prepare_torch_head, (setting, False)),
    candidate(TORCH_MASKED, prepare_torch_head, (setting, True)),
  ]


TRAIN_STEP = Benchmark(PRETRAINING, pretraining_candidates, **STEPS, conclusion=utilization)
FINETUNING_STEP = Benchmark(FINETUNING, finetuning_candidates, **STEPS, conclusion=utilization)
HEAD = Benchmark(
  {
    'v32k': head_setting(32_000),
    'v120k': head_setting(120_000),
    'v250k': head_setting(250_300),
    'v500k': head_setting(500_000),
  },
  head_candidates,
)
