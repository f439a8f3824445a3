"""One step of fine-tuning on a CPU: forward, backward, clipping by global norm, AdamW.

Sentence pairs with three labels, as in XNLI, and texts in which a span is to be found, as in SQuAD. This project makes
the step of `rembert.jobs.finetune`; beside it Hugging Face's `RemBertForSequenceClassification` and
`RemBertForQuestionAnswering` in torch as their users train them, in float32 and under bfloat16 autocast. Everybody
begins with the same random weights, from one folder, and learns the same batch. Dropout is what fine-tuning has by
default: 0.1 before the classifier, and none elsewhere.

Rows are full. Shorter ones are padded to the same length by both, and take as long. With padding the losses of spans
would differ: theirs lets it take part in the softmax over positions, this project's does not. AdamW is BERT's here,
without bias correction and with decay that spares LayerNorms and biases, and torch's there; both take one pass over the
parameters.
"""

import dataclasses
import functools
import pathlib

import numpy as np

from benchmarks.settings import FIRST_PIECE, SMALL, USEFUL, encoder_sizes, write_random_model
from benchmarks.turns import Contestant, Run
from benchmarks.updates import STEPS_IN_A_ROW, STEPS_TO_WARM_UP, our_optimizer, torch_step
from rembert.model.config import Execution, RemBertConfig

LEARNING_RATE = 1e-5
WARM_UP_RUNS, RUNS_IN_A_ROW = STEPS_TO_WARM_UP, STEPS_IN_A_ROW

OURS, TORCH, TORCH_BF16 = 'this project', 'torch, float32', 'torch, bfloat16 autocast'


@dataclasses.dataclass(frozen=True)
class Setting:
  """A model, what it learns, and the shape of its batch.

  Attributes:
    config: the architecture.
    head: see `rembert.model.heads.HEADS`.
    rows: B.
    length: S.
    num_labels: of a classifier.
    dtype: in what it is computed.
  """

  config: RemBertConfig
  head: str
  rows: int
  length: int
  num_labels: int | None = None
  dtype: str = 'float32'

  @property
  def description(self) -> str:
    """One line."""
    learned = f'{self.num_labels} labels' if self.num_labels else 'spans'
    return f'batch {self.rows} × {self.length}, {learned}, {self.dtype} · {encoder_sizes(self.config)}'


SETTINGS = {
  'xnli': Setting(SMALL, 'classification', rows=32, length=128, num_labels=3),
  'squad': Setting(SMALL, 'qa', rows=8, length=384),
  'xnli_bfloat16': Setting(SMALL, 'classification', rows=32, length=128, num_labels=3, dtype='bfloat16'),
  'squad_bfloat16': Setting(SMALL, 'qa', rows=8, length=384, dtype='bfloat16'),
}


def random_batch(setting: Setting) -> dict[str, np.ndarray]:
  """Full rows of two texts, as `rembert.data.rows` has them; labels [B], or first and last position [B, 2]."""
  random, (rows, length) = np.random.default_rng(0), (setting.rows, setting.length)
  second_text = random.integers(1, length, (rows, 1))  # where it begins
  spans = np.sort(random.integers(0, length, (rows, 2)))
  return {
    'input_ids': random.integers(FIRST_PIECE, setting.config.vocab_size, (rows, length)).astype(np.int32),
    'token_type_ids': (np.arange(length) >= second_text).astype(np.int32),
    'segment_ids': np.ones((rows, length), np.int32),
    'labels': (random.integers(0, setting.num_labels, rows) if setting.num_labels else spans).astype(np.int32),
  }


# --- contestants: each returns a function that makes one step and says its loss ---------------------------------------


def prepare_ours(setting: Setting, folder: pathlib.Path) -> Run:
  """The step that fine-tuning runs on a CPU: mesh, metrics; layers unrolled, freed memory kept."""
  import jax

  from rembert.jobs.initial_parameters import open_initial
  from rembert.model.heads import build_model
  from rembert.training import cpu_memory, sharding, state, step

  config, head, num_labels = setting.config, setting.head, setting.num_labels
  cpu_memory.keep_freed_memory_if_it_fits(config, setting.rows * setting.length)
  jax.config.update('jax_platforms', 'cpu')
  mesh = sharding.make_mesh(sharding.MeshConfig())
  execution = Execution(setting.dtype, unroll=config.num_hidden_layers, trim_last_layer=True)  # as gin/hardware/cpu.gin
  trainable = state.trainable(
    lambda rngs: build_model(head, config, execution, num_labels=num_labels, rngs=rngs),
    execution,
    our_optimizer(LEARNING_RATE),
    mesh,
  )
  initial = open_initial(folder, 'all', config, head=head, num_labels=num_labels)
  with jax.set_mesh(mesh):
    batch = sharding.to_device(random_batch(setting), mesh)
    dropout_seed = 0 if config.classifier_dropout_prob else None
    train_step = step.make_train_step(trainable, sums_of=step.head_sums(head), dropout_seed=dropout_seed)
    train_state = initial.put_into(trainable.init(0))

  def run() -> dict[str, float]:
    nonlocal train_state
    with jax.set_mesh(mesh):
      train_state, metrics = jax.block_until_ready(train_step(train_state, batch))
    return {'loss': float(metrics.sums.loss / metrics.sums.weight)}

  return run


def prepare_torch(setting: Setting, folder: pathlib.Path, autocast: bool) -> Run:
  """Hugging Face's model with labels."""
  import torch
  import transformers

  torch.manual_seed(0)
  is_classifier = setting.head == 'classification'
  heads = transformers.RemBertForSequenceClassification, transformers.RemBertForQuestionAnswering
  model = heads[0 if is_classifier else 1].from_pretrained(folder).train()
  batch = {name: torch.tensor(array, dtype=torch.long) for name, array in random_batch(setting).items()}
  labels = batch.pop('labels')
  inputs = {'attention_mask': batch.pop('segment_ids'), **batch}
  inputs |= {'labels': labels} if is_classifier else {'start_positions': labels[:, 0], 'end_positions': labels[:, 1]}
  return torch_step(model, lambda: model(**inputs).loss, LEARNING_RATE, autocast=autocast)


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  from rembert.training import flops

  setting, folder = SETTINGS[setting_name], scratch / 'model'
  write_random_model(folder, setting.config, setting.head, num_labels=setting.num_labels)
  last_queries = 1 if setting.num_labels else None  # a classifier looks at the first position alone
  per_row = flops.train_flops_per_row(setting.config, setting.length, 0, last_queries=last_queries)
  gigaflops = setting.rows * per_row / 1e9
  contestant = functools.partial(Contestant, work={'tokens': setting.rows * setting.length, USEFUL: gigaflops})
  return [
    contestant(OURS, prepare_ours, (setting, folder)),
    contestant(TORCH_BF16, prepare_torch, (setting, folder, True))
    if setting.dtype == 'bfloat16'
    else contestant(TORCH, prepare_torch, (setting, folder, False)),
  ]
