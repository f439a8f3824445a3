"""Reads masked batches from a token store on one core, and trains on batches from a store or from a stream.

`reading`: a run reads some hundred batches. This project opens a token store as in pre-training, with the mixture of
languages, the order of each epoch, segments, positions and masks. The comparison is with the same sequences in a
`datasets.Dataset` on disk: read as by `Trainer` (a torch `DataLoader` without worker processes, in random order, with
`DataCollatorForLanguageModeling`), and as fast as possible (sequences of a batch as NumPy arrays, passed to the
collator's masking). Both store the positions of special tokens with the ids, and neither mixes languages or separates
packed documents.

`pretraining`: a run trains gin/pretrain_smoke.gin for 100 steps, with batches read ahead of the step as in a real run:
from a token store, and streamed from the corpus that the store was made of through SeqIO tasks.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks import settings
from benchmarks.interleaved import OURS, Benchmark, Candidate, Run

PRETRAINING_STEPS = 100

STREAMED = '… streamed through SeqIO'
TRAINER, ARRAYS = 'datasets, as Trainer', 'datasets, whole arrays'


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BatchSetting:
  """The shape of a batch, batches per run, more for the description, and a vocabulary, by default the smoke run's."""

  rows: int
  length: int
  batches: int
  detail: str = '12 languages, V 5,000'
  vocab_size: int = 5000

  @property
  def description(self) -> str:
    return f'{self.batches} batches of {self.rows} × {self.length}, {self.detail}'

  @property
  def work(self) -> dict[str, float]:
    """Work of a run, by unit."""
    rows = self.rows * self.batches
    return {'rows': rows, 'tokens': rows * self.length}


def make_store(setting: BatchSetting, scratch: pathlib.Path, *corpus_options: str) -> pathlib.Path:
  """A token store of the sample corpus, with `corpus` and `sentencepiece.model` next to it; half a minute."""
  corpus, vocabulary, store = scratch / 'corpus', scratch / 'sentencepiece.model', scratch / 'store'
  settings.make_vocabulary(setting.vocab_size, vocabulary)
  settings.call('tasks.corpus', f'--dumps={settings.SAMPLE}', f'--output={corpus}', *corpus_options)
  flags = (f'--corpus={corpus}', f'--vocabulary={vocabulary}', f'--output={store}')
  settings.call('tasks.token_store', *flags, f'--sequence_length={setting.length}')
  return store


def open_batches(data: Mapping[str, str], scratch: pathlib.Path, *, rows: int, length: int, vocab_size: int):
  """The source of a run's batches, with the given fields of `data` and the vocabulary in `scratch`."""
  from etils import epath

  from rembert.data.config import DataConfig, DataRequest, VocabularyConfig
  from rembert.jobs.pretrain_data import open_data
  from rembert.tracking.console import Console

  request = DataRequest(
    data=DataConfig(**data),
    vocabulary=VocabularyConfig(path=str(scratch / 'sentencepiece.model')),
    batch_size=rows,
    sequence_length=length,
    vocab_size=vocab_size,
    evaluation_rows=64,
  )
  workdir = epath.Path(scratch / '-'.join(data))
  return open_data(request, workdir=workdir, console=Console(is_quiet=True)).batches


def prepare_reading(setting: BatchSetting, store: pathlib.Path, hosts: int = 1) -> Run:
  """Reads the batches of pre-training, or the first host's part of them."""
  data = {'source': 'store', 'store': str(store)}
  source = open_batches(data, store.parent, rows=setting.rows, length=setting.length, vocab_size=setting.vocab_size)
  source, first = dataclasses.replace(source, process=(0, hosts)), 0

  def run() -> dict[str, float]:
    nonlocal first
    batch, _ = last(itertools.islice(source.batches(first), setting.batches))
    first += setting.batches
    return {'masked per sequence': float(batch['weights'].sum()) / len(batch['weights'])}

  return run


def prepare_trainer(setting: BatchSetting, store: pathlib.Path) -> Run:
  """Reads lists of ids; the tokenizer pads and converts them to tensors, the collator masks them."""
  import torch
  from transformers import DataCollatorForLanguageModeling

  dataset, tokenizer = write_dataset(store, store.parent / 'for-trainer')
  collator = DataCollatorForLanguageModeling(tokenizer)
  loader = torch.utils.data.DataLoader(dataset, setting.rows, shuffle=True, drop_last=True, collate_fn=collator)
  epochs = itertools.chain.from_iterable(itertools.repeat(loader))

  def run() -> dict[str, float]:
    batch = last(itertools.islice(epochs, setting.batches))
    return {'masked per sequence': int((batch['labels'] != -100).sum()) / setting.rows}

  return run


def prepare_arrays(setting: BatchSetting, store: pathlib.Path) -> Run:
  """Reads the sequences of a batch in one call, in the order of a permutation per epoch; the collator masks arrays."""
  from transformers import DataCollatorForLanguageModeling

  dataset, tokenizer = write_dataset(store, store.parent / 'for-arrays')
  dataset = dataset.with_format('numpy')
  collator = DataCollatorForLanguageModeling(tokenizer, return_tensors='np')
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
    return {'masked per sequence': np.count_nonzero(labels != -100) / setting.rows}

  return run


def last(batches: Iterator):
  """Reads all batches and returns the last."""
  return collections.deque(batches, maxlen=1).pop()


def write_dataset(store: pathlib.Path, folder: pathlib.Path):
  """All sequences of the store as a memory-mapped dataset on disk; and a tokenizer with the special ids."""
  import datasets
  import tokenizers
  import transformers

  from rembert.data.token_store import TokenStore

  opened = TokenStore(store)
  counts = {language: opened.rows(language, 'train') for language in opened.languages}
  ids = np.concatenate([opened.read(language, 'train', range(rows)) for language, rows in counts.items()])
  is_special = np.isin(ids, [opened.special.cls, opened.special.sep, opened.special.pad])
  # Sequences of fixed length are the fastest to read as arrays, and as fast as lists.
  column = lambda dtype: datasets.Sequence(datasets.Value(dtype), length=opened.sequence_length)
  features = datasets.Features({'input_ids': column('int32'), 'special_tokens_mask': column('int8')})
  datasets.disable_progress_bars()
  columns = {'input_ids': list(ids), 'special_tokens_mask': list(is_special.astype(np.int8))}
  datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder)

  special = {f'{name}_token': id for name, id in dataclasses.asdict(opened.special).items() if name != 'unknown'}
  names = {id: name for name, id in special.items()}
  words = {names.get(id, str(id)): id for id in range(opened.vocab_size)}
  model = tokenizers.models.WordLevel(words, unk_token=str(opened.special.unknown))
  tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=tokenizers.Tokenizer(model), **{name: name for name in special}
  )
  return datasets.load_from_disk(folder), tokenizer


def smoke_training() -> settings.Setting:
  """The model and batch of the smoke run."""
  from rembert import configuration
  from rembert.data.masking import MaskingConfig
  from rembert.model.config import RemBertConfig
  from rembert.train.trainer import TrainConfig

  configuration.load([settings.SMOKE], [])
  model, train = configuration.build(RemBertConfig), configuration.build(TrainConfig)
  slots = configuration.build(MaskingConfig).slots(train.sequence_length)
  return settings.Setting(model, train.batch_size, train.sequence_length, slots)


def reading_candidates(setting: BatchSetting, scratch: pathlib.Path) -> list[Candidate]:
  candidate = functools.partial(
    Candidate, arguments=(setting, make_store(setting, scratch)), work=setting.work, one_core=True
  )
  return [candidate(OURS, prepare_reading), candidate(TRAINER, prepare_trainer), candidate(ARRAYS, prepare_arrays)]


READING = Benchmark(
  {'rows64': BatchSetting(32, 64, batches=300), 'rows512': BatchSetting(32, 512, batches=100)},
  reading_candidates,
)


# --- training with its data -------------------------------------------------------------------------------------------


def prepare_pretraining(setting: settings.Setting, data: Mapping[str, str], scratch: pathlib.Path) -> Run:
  """Pre-training steps on the batches of a run with this data."""
  import jax

  from rembert.data.batches import prefetch
  from rembert.train import sharding, state, step

  mesh = settings.start_jax(setting)
  vocab_size = setting.config.vocab_size
  source = open_batches(data, scratch, rows=setting.rows, length=setting.length, vocab_size=vocab_size)
  trainable = state.masked_lm(setting.config, setting.execution, settings.our_optimizer(setting.learning_rate), mesh)
  with jax.set_mesh(mesh):
    train, trained = step.make_train_step(trainable), trainable.init(0)
  batches = prefetch(source.batches(0, None), lambda item: sharding.to_device(item[0], mesh))

  def run() -> dict[str, float]:
    nonlocal trained
    with jax.set_mesh(mesh):
      for batch in itertools.islice(batches, PRETRAINING_STEPS):
        trained, metrics = train(trained, batch, None)
      jax.block_until_ready(trained)
    return {'loss': float(metrics.sums.loss / metrics.sums.weight)}

  return run


def pretraining_candidates(setting: BatchSetting, scratch: pathlib.Path) -> list[Candidate]:
  store = make_store(setting, scratch)
  training = smoke_training()
  work = {unit: setting.work[unit] for unit in ('tokens', 'rows')}
  from_store, streamed = {'source': 'store', 'store': str(store)}, {'corpus': str(scratch / 'corpus')}
  return [
    Candidate(OURS, prepare_pretraining, (training, from_store, scratch), work),
    Candidate(STREAMED, prepare_pretraining, (training, streamed, scratch), work),
  ]


PRETRAINING = Benchmark({'smoke': BatchSetting(32, 64, batches=PRETRAINING_STEPS)}, pretraining_candidates)
