"""What several benchmarks of the model share: its sizes, a random batch, and Hugging Face's form of both."""

import dataclasses
import json
import pathlib

import numpy as np

from rembert.model.config import RemBertConfig

USEFUL = 'useful GFLOP'  # products that the model needs, the head at masked positions only: the same for everybody
SMOKE = 'gin/pretrain_smoke.gin'
FIRST_PIECE = 315  # ids below are special


def encoder_sizes(config: RemBertConfig) -> str:
  """For the line that describes a setting."""
  return (
    f'L {config.num_hidden_layers}, H {config.hidden_size}, {config.num_attention_heads} heads, '
    f'V {config.vocab_size:,}, I {config.input_embedding_size}'
  )


@dataclasses.dataclass(frozen=True)
class Setting:
  """A model, the shape of its batch, and in what it is computed; `slots` is K, the masked positions of a row."""

  config: RemBertConfig
  rows: int
  length: int
  slots: int
  dtype: str = 'float32'

  @property
  def description(self) -> str:
    """One line."""
    sizes = f'{encoder_sizes(self.config)}, E {self.config.output_embedding_size}'
    return f'batch {self.rows} × {self.length}, {self.slots} masked a row, {self.dtype} · {sizes}'


SMALL = RemBertConfig(
  vocab_size=32_000,
  input_embedding_size=128,
  output_embedding_size=512,
  hidden_size=256,
  num_hidden_layers=4,
  num_attention_heads=4,
  intermediate_size=1024,
)
BASE = RemBertConfig(
  vocab_size=120_000,
  input_embedding_size=128,
  output_embedding_size=768,
  hidden_size=768,
  num_hidden_layers=12,
  num_attention_heads=12,
  intermediate_size=3072,
)
LARGE = RemBertConfig()  # the released model


def random_batch(setting: Setting) -> dict[str, np.ndarray]:
  """Full rows; `labels` are the targets as Hugging Face wants them, −100 where there is none."""
  random = np.random.default_rng(0)
  rows, length, slots, vocabulary = setting.rows, setting.length, setting.slots, setting.config.vocab_size
  positions = np.stack([np.sort(random.choice(length, slots, replace=False)) for _ in range(rows)])
  targets = random.integers(FIRST_PIECE, vocabulary, (rows, slots))
  labels = np.full((rows, length), -100)
  np.put_along_axis(labels, positions, targets, axis=1)
  return {
    'input_ids': random.integers(FIRST_PIECE, vocabulary, (rows, length)).astype(np.int32),
    'attention_mask': np.ones((rows, length), np.int32),
    'masked_positions': positions.astype(np.int32),
    'targets': targets.astype(np.int32),
    'weights': np.ones((rows, slots), np.float32),
    'labels': labels,
  }


def torch_config(config: RemBertConfig):
  """The same model for transformers."""
  import transformers

  fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  fields.pop('pad_vocab_to_multiple_of')
  return transformers.RemBertConfig(**fields)


def write_random_model(
  folder: pathlib.Path, config: RemBertConfig, head: str | None = None, *, num_labels: int | None = None
) -> None:
  """A folder of Hugging Face with random weights: whoever loads it, here or there, computes the same function."""
  from rembert.convert import huggingface
  from rembert.convert.names import ENCODER_PREFIX, slots
  from rembert.model.heads import FIXED_LABELS, POOLED

  random = np.random.default_rng(2)

  def read(name: str) -> np.ndarray:
    center = 1 if name.endswith('LayerNorm.weight') else 0
    return center + config.initializer_range * random.standard_normal(shapes[name], np.float32)

  prefix = '' if head is None else ENCODER_PREFIX
  shapes = {
    (prefix if slot.leaf.startswith('encoder/') else '') + slot.hugging_face: slot.shape_in(huggingface.FORM)
    for slot in slots(config, head, num_labels=num_labels, has_pooler=head in POOLED)
  }
  labels = [str(label) for label in range(num_labels or FIXED_LABELS.get(head, 0))]
  folder.mkdir()
  (folder / 'config.json').write_text(json.dumps(huggingface.config_json(config, head, labels), indent=2))
  sizes = {name: 4 * int(np.prod(shape)) for name, shape in shapes.items()}
  huggingface.write_weights(folder, sizes, read, shard_bytes=sum(sizes.values()))
