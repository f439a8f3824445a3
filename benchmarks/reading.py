"""Rows of a token store, shuffled and masked, on one core: this project beside Hugging Face's datasets and collator.

A run goes through some hundred batches. This project's side is what pre-training calls: a store opened by `open_store`
and its `batches`, with the mixture of languages, the order of each epoch, segments, positions and masks. Beside it the
very same rows as a `datasets.Dataset` on disk, in two ways: as `Trainer` reads them (a torch `DataLoader` without
worker processes, random order, `DataCollatorForLanguageModeling`), and as someone would who looks for speed (the rows
of a batch fetched together as NumPy arrays and given to the collator's masking). Both have the places of special tokens
stored beside the ids, and neither has to mix languages or to tell the documents of a row apart.

With rows of 64 there is also the training step of gin/pretrain_smoke.gin on all cores. How many times as long it takes
is how many times as fast rows can be had from one core as they are wanted.

The store is made from the sample corpus by `python -m tasks.token_store`, with a vocabulary of its own.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator

import numpy as np

from benchmarks import sample_corpus, settings, train_step
from benchmarks.turns import Contestant, Run
from rembert.data.masking import MaskingConfig

TRAINING_STEPS = 10

OURS, TRAINER, ARRAYS = 'this project', 'datasets, as Trainer', 'datasets, whole arrays'
TRAINING = '(pretrain_smoke trains, all cores)'


@dataclasses.dataclass(frozen=True)
class Setting:
  """The shape of a batch, how many of them make a run, and the vocabulary, which is that of the smoke run."""

  rows: int
  length: int
  batches: int
  with_training: bool = False
  pieces: int = 5000

  @property
  def description(self) -> str:
    """One line."""
    return f'{self.batches} batches of {self.rows} × {self.length}, 12 languages, V {self.pieces:,}'


SETTINGS = {
  'rows64': Setting(rows=32, length=64, batches=300, with_training=True),
  'rows512': Setting(rows=32, length=512, batches=100),
}


def make_store(setting: Setting, scratch: pathlib.Path) -> pathlib.Path:
  """A store of the sample corpus; half a minute."""
  vocabulary, store = scratch / 'sentencepiece.model', scratch / 'store'
  sample_corpus.make_vocabulary(setting.pieces, vocabulary)
  sample_corpus.call(
    'tasks.token_store',
    *(f'--dumps={sample_corpus.PATTERN}', f'--vocabulary={vocabulary}', f'--output={store}'),
    f'--sequence_length={setting.length}',
  )
  return store


# --- contestants: each returns a function that reads the next batches -------------------------------------------------


def prepare_ours(setting: Setting, folder: pathlib.Path, workdir: pathlib.Path | None = None) -> Run:
  """The batches of pre-training; the workdir is beside the store unless it is named."""
  import jax
  from etils import epath

  from rembert.data.config import DataConfig, DataRequest
  from rembert.jobs.pretrain_data import open_store
  from rembert.training.console import Console

  jax.config.update('jax_platforms', 'cpu')
  request = DataRequest(
    data=DataConfig(source='store', store=str(folder)),
    batch_size=setting.rows,
    sequence_length=setting.length,
    vocab_size=setting.pieces,
    evaluation_rows=64,
  )
  opened = open_store(
    request,
    workdir=epath.Path(workdir or folder.parent / 'workdir'),
    console=Console(is_quiet=True),
  )
  first = 0

  def run() -> dict[str, float]:
    nonlocal first
    batch, _ = _last(itertools.islice(opened.batches.batches(first), setting.batches))
    first += setting.batches
    return {'masked a row': float(batch['weights'].sum()) / setting.rows}

  return run


def prepare_trainer(setting: Setting, folder: pathlib.Path) -> Run:
  """Lists of ids from disk, padded and made into tensors by the tokenizer, masked by the collator."""
  import torch
  from transformers import DataCollatorForLanguageModeling

  dataset = _dataset(folder, folder.parent / 'for-trainer')
  collator = DataCollatorForLanguageModeling(_tokenizer(folder))
  loader = torch.utils.data.DataLoader(dataset, setting.rows, shuffle=True, drop_last=True, collate_fn=collator)
  epochs = itertools.chain.from_iterable(itertools.repeat(loader))

  def run() -> dict[str, float]:
    batch = _last(itertools.islice(epochs, setting.batches))
    return {'masked a row': int((batch['labels'] != -100).sum()) / setting.rows}

  return run


def prepare_arrays(setting: Setting, folder: pathlib.Path) -> Run:
  """A permutation an epoch, a batch's rows in one call, and the collator's masking on their arrays."""
  from transformers import DataCollatorForLanguageModeling

  dataset = _dataset(folder, folder.parent / 'for-arrays').with_format('numpy')
  collator = DataCollatorForLanguageModeling(_tokenizer(folder), return_tensors='np')
  random = np.random.default_rng(0)

  def shuffled() -> Iterator[np.ndarray]:
    while True:
      order = random.permutation(len(dataset))
      yield from np.split(order[: len(order) // setting.rows * setting.rows], len(order) // setting.rows)

  indices = shuffled()

  def run() -> dict[str, float]:
    for some in itertools.islice(indices, setting.batches):
      rows = dataset[some]
      _, labels = collator.numpy_mask_tokens(rows['input_ids'], rows['special_tokens_mask'])
    return {'masked a row': np.count_nonzero(labels != -100) / setting.rows}

  return run


def _last(batches: Iterator):
  return collections.deque(batches, maxlen=1).pop()


def _dataset(store: pathlib.Path, folder: pathlib.Path):
  """All rows of the store, written and opened again: memory-mapped, as large ones are."""
  import datasets

  from rembert.data.token_store import TokenStore

  opened = TokenStore(store)
  counts = {language: opened.rows(language, 'train') for language in opened.languages}
  ids = np.concatenate([opened.read(language, 'train', range(rows)) for language, rows in counts.items()])
  is_special = np.isin(ids, [opened.special.cls, opened.special.sep, opened.special.pad])
  # Rows of fixed length are the fastest to get as arrays, and no slower as lists.
  column = lambda dtype: datasets.Sequence(datasets.Value(dtype), length=opened.sequence_length)
  features = datasets.Features({'input_ids': column('int32'), 'special_tokens_mask': column('int8')})
  datasets.disable_progress_bars()
  written = {'input_ids': list(ids), 'special_tokens_mask': list(is_special.astype(np.int8))}
  datasets.Dataset.from_dict(written, features=features).save_to_disk(folder)
  return datasets.load_from_disk(folder)


def _tokenizer(store: pathlib.Path):
  """One that knows as many pieces and the special ones by their ids; that is all that the collator asks of it."""
  import tokenizers
  import transformers

  from rembert.data.token_store import TokenStore

  opened = TokenStore(store)
  special = {f'{name}_token': id for name, id in dataclasses.asdict(opened.special).items() if name != 'unknown'}
  names = {id: name for name, id in special.items()}
  pieces = {names.get(id, str(id)): id for id in range(opened.vocab_size)}
  words = tokenizers.models.WordLevel(pieces, unk_token=str(opened.special.unknown))
  return transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(words), **{name: name for name in special}
  )


def prepare_training(setting: settings.Setting) -> Run:
  """Training steps, one after the other, on a batch that lies ready."""
  step = train_step.prepare_ours(setting)

  def run() -> dict[str, float]:
    return [step() for _ in range(TRAINING_STEPS)][-1]

  return run


def smoke_training() -> settings.Setting:
  """Model and batch of the smoke run."""
  from rembert import configuration
  from rembert.model.config import RemBertConfig
  from rembert.training.loop import TrainConfig

  configuration.load([settings.SMOKE], [])
  model, train = configuration.build(RemBertConfig), configuration.build(TrainConfig)
  slots = configuration.build(MaskingConfig).slots(train.sequence_length)
  return settings.Setting(model, train.batch_size, train.sequence_length, slots)


def contestants(setting_name: str, scratch: pathlib.Path) -> list[Contestant]:
  """In the order in which they run; the first is this project, and ratios are taken to it."""
  setting = SETTINGS[setting_name]
  store = make_store(setting, scratch)
  rows = setting.rows * setting.batches
  contestant = functools.partial(
    Contestant, arguments=(setting, store), work={'rows': rows, 'tokens': rows * setting.length}, one_core=True
  )
  reading = [contestant(OURS, prepare_ours), contestant(TRAINER, prepare_trainer), contestant(ARRAYS, prepare_arrays)]
  if not setting.with_training:
    return reading
  training = smoke_training()
  rows = training.rows * TRAINING_STEPS
  work = {'rows': rows, 'tokens': rows * training.length}
  return [*reading, Contestant(TRAINING, prepare_training, (training,), work)]
