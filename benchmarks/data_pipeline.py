"""A token store to batches, and batches to masked batches, on one core.

`reading`: a run reads some hundred batches. This project opens a token store as pre-training does, with the mixture of
languages, the order of each epoch, segments, positions and masks. It is compared with the same rows in a
`datasets.Dataset` on disk: read as by `Trainer` (a torch `DataLoader` without worker processes, in random order, with
`DataCollatorForLanguageModeling`), and as fast as possible (a batch's rows as NumPy arrays, passed to the collator's
masking). Both have the places of special tokens stored with the ids, and neither mixes languages or separates the
documents of a row. With rows of 64 there is also the training step of gin/pretrain_smoke.gin on all cores: its relative
time says how much faster one core reads rows than they are needed.

`pretraining`: a run trains gin/pretrain_smoke.gin for 100 steps, with batches read ahead of the step as in a real run:
from a token store, and streamed from the corpus that the store was made of through SeqIO tasks.

`opening`: a run opens the streamed data of pre-training in RemBERT's 110 languages, and makes its first batch. It is
compared with `seqio.get_dataset` on the mixture of the same tasks, packed and masked by this project's feature
converter. Each language has eighty documents of the sample corpus.

`masking`: a run masks some hundred batches. This project's variants are compared with the same masks of single tokens
drawn row by row by NumPy's counter-based generator; and with Hugging Face's collator, which draws for each token
separately (so that the number of predictions varies) and does not repeat a row's masks when it is read again.
"""

import collections
import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator, Mapping

import numpy as np

from benchmarks import settings, text_pipeline, train_step
from benchmarks.interleaved import OURS, Benchmark, Candidate, Run
from rembert.data.masking import MaskingConfig, mask_rows
from rembert.tokenizer import SpecialIds

TRAINING_STEPS, PRETRAINING_STEPS = 10, 100
MASKED_VOCABULARY, SPECIAL = 250_300, SpecialIds()

STREAMED, SEQIO_MIXTURE = '… streamed through SeqIO', 'seqio.get_dataset'
TRAINER, ARRAYS, TRAINING = 'datasets, as Trainer', 'datasets, whole arrays', '(pretrain_smoke trains, all cores)'
WHOLE_WORDS, SPANS = '… whole words', '… spans of 1 to 3 words'
ROW_BY_ROW, HUGGING_FACE = 'row by row', 'Hugging Face, NumPy'


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BatchSetting:
  """The shape of a batch, batches per run, more for the description, and a vocabulary, by default the smoke run's."""

  rows: int
  length: int
  batches: int
  detail: str = '12 languages, V 5,000'
  vocab_size: int = 5000
  with_training: bool = False

  @property
  def description(self) -> str:
    """One line."""
    return f'{self.batches} batches of {self.rows} × {self.length}, {self.detail}'

  @property
  def work(self) -> dict[str, float]:
    """Of a run."""
    rows = self.rows * self.batches
    return {'rows': rows, 'tokens': rows * self.length}


def make_store(setting: BatchSetting, scratch: pathlib.Path) -> pathlib.Path:
  """A token store of the sample corpus, with `corpus` and `sentencepiece.model` beside it; half a minute."""
  corpus, vocabulary, store = scratch / 'corpus', scratch / 'sentencepiece.model', scratch / 'store'
  text_pipeline.make_vocabulary(setting.vocab_size, vocabulary)
  text_pipeline.call('tasks.corpus', f'--dumps={text_pipeline.SAMPLE}', f'--output={corpus}')
  flags = (f'--corpus={corpus}', f'--vocabulary={vocabulary}', f'--output={store}')
  text_pipeline.call('tasks.token_store', *flags, f'--sequence_length={setting.length}')
  return store


def open_batches(data: Mapping[str, str], scratch: pathlib.Path, *, rows: int, length: int, vocab_size: int):
  """The source of a run's batches, with what gin would set of `data` and the vocabulary in `scratch`."""
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


def prepare_reading(setting: BatchSetting, store: pathlib.Path) -> Run:
  """The batches of pre-training."""
  data = {'source': 'store', 'store': str(store)}
  source = open_batches(data, store.parent, rows=setting.rows, length=setting.length, vocab_size=setting.vocab_size)
  first = 0

  def run() -> dict[str, float]:
    nonlocal first
    batch, _ = last(itertools.islice(source.batches(first), setting.batches))
    first += setting.batches
    return {'masked a row': float(batch['weights'].sum()) / setting.rows}

  return run


def prepare_trainer(setting: BatchSetting, store: pathlib.Path) -> Run:
  """Lists of ids from disk, padded and made into tensors by the tokenizer, masked by the collator."""
  import torch
  from transformers import DataCollatorForLanguageModeling

  dataset, tokenizer = write_dataset(store, store.parent / 'for-trainer')
  collator = DataCollatorForLanguageModeling(tokenizer)
  loader = torch.utils.data.DataLoader(dataset, setting.rows, shuffle=True, drop_last=True, collate_fn=collator)
  epochs = itertools.chain.from_iterable(itertools.repeat(loader))

  def run() -> dict[str, float]:
    batch = last(itertools.islice(epochs, setting.batches))
    return {'masked a row': int((batch['labels'] != -100).sum()) / setting.rows}

  return run


def prepare_arrays(setting: BatchSetting, store: pathlib.Path) -> Run:
  """A permutation per epoch, the rows of a batch in one call, and the collator's masking of their arrays."""
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
    return {'masked a row': np.count_nonzero(labels != -100) / setting.rows}

  return run


def last(batches: Iterator):
  """Reads all, and keeps the last one."""
  return collections.deque(batches, maxlen=1).pop()


def write_dataset(store: pathlib.Path, folder: pathlib.Path):
  """All rows of the store as a dataset on disk, memory-mapped; and a tokenizer that knows the special ids."""
  import datasets
  import tokenizers
  import transformers

  from rembert.data.token_store import TokenStore

  opened = TokenStore(store)
  counts = {language: opened.rows(language, 'train') for language in opened.languages}
  ids = np.concatenate([opened.read(language, 'train', range(rows)) for language, rows in counts.items()])
  is_special = np.isin(ids, [opened.special.cls, opened.special.sep, opened.special.pad])
  # Rows of fixed length are the fastest to get as arrays, and no slower as lists.
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


def prepare_training(setting: settings.Setting) -> Run:
  """Training steps, one after the other, on the same batch."""
  step = train_step.prepare_ours(setting)
  return lambda: [step() for _ in range(TRAINING_STEPS)][-1]


def smoke_training() -> settings.Setting:
  """Model and batch of the smoke run."""
  from rembert import configuration
  from rembert.model.config import RemBertConfig
  from rembert.train.trainer import TrainConfig

  configuration.load([settings.SMOKE], [])
  model, train = configuration.build(RemBertConfig), configuration.build(TrainConfig)
  slots = configuration.build(MaskingConfig).slots(train.sequence_length)
  return settings.Setting(model, train.batch_size, train.sequence_length, slots)


def reading_candidates(setting: BatchSetting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  candidate = functools.partial(
    Candidate, arguments=(setting, make_store(setting, scratch)), work=setting.work, one_core=True
  )
  reading = [candidate(OURS, prepare_reading), candidate(TRAINER, prepare_trainer), candidate(ARRAYS, prepare_arrays)]
  if not setting.with_training:
    return reading
  training = smoke_training()
  work = BatchSetting(training.rows, training.length, TRAINING_STEPS).work
  return [*reading, Candidate(TRAINING, prepare_training, (training,), work)]


READING = Benchmark(
  {'rows64': BatchSetting(32, 64, batches=300, with_training=True), 'rows512': BatchSetting(32, 512, batches=100)},
  reading_candidates,
)


# --- training with its data -------------------------------------------------------------------------------------------


def prepare_pretraining(setting: settings.Setting, data: Mapping[str, str], scratch: pathlib.Path) -> Run:
  """Steps of pre-training on the batches of a run with such data."""
  import jax

  from rembert.data.prefetch import prefetch
  from rembert.train import sharding, state, step

  mesh = settings.start_jax(setting)
  vocab_size = setting.config.vocab_size
  source = open_batches(data, scratch, rows=setting.rows, length=setting.length, vocab_size=vocab_size)
  trainable = state.masked_lm(setting.config, setting.execution, settings.our_optimizer(train_step.LEARNING_RATE), mesh)
  with jax.set_mesh(mesh):
    train, trained = step.make_train_step(trainable), trainable.init(0)
  batches = prefetch(source.batches(0, None), lambda item: sharding.to_device(item[0], mesh))

  def run() -> dict[str, float]:
    nonlocal trained
    with jax.set_mesh(mesh):
      for batch in itertools.islice(batches, PRETRAINING_STEPS):
        trained, metrics = train(trained, batch)
      jax.block_until_ready(trained)
    return {'loss': float(metrics.sums.loss / metrics.sums.weight)}

  return run


def pretraining_candidates(setting: BatchSetting, scratch: pathlib.Path) -> list[Candidate]:
  """From a store first."""
  store = make_store(setting, scratch)
  training = smoke_training()
  work = {unit: setting.work[unit] for unit in ('tokens', 'rows')}
  from_store, streamed = {'source': 'store', 'store': str(store)}, {'corpus': str(scratch / 'corpus')}
  return [
    Candidate(OURS, prepare_pretraining, (training, from_store, scratch), work),
    Candidate(STREAMED, prepare_pretraining, (training, streamed, scratch), work),
  ]


PRETRAINING = Benchmark({'smoke': BatchSetting(32, 64, batches=PRETRAINING_STEPS)}, pretraining_candidates)


# --- opening ----------------------------------------------------------------------------------------------------------


def make_many_languages(setting: BatchSetting, scratch: pathlib.Path) -> pathlib.Path:
  """A corpus of RemBERT's languages, with `sentencepiece.model` beside it."""
  from tasks.wikipedia.languages import LISTS

  corpus, folder, texts = scratch / 'corpus', scratch / 'texts', text_pipeline.sample_texts()
  text_pipeline.make_vocabulary(setting.vocab_size, scratch / 'sentencepiece.model')
  folder.mkdir(exist_ok=True)
  for number, language in enumerate(LISTS['rembert']):
    documents = (' '.join(texts[(number + i) % len(texts)].split()) for i in range(80))
    (folder / f'{language}.txt').write_text('\n\n'.join(documents))
  text_pipeline.call('tasks.corpus', f'--text={folder}', f'--output={corpus}')
  return corpus


def prepare_opening(setting: BatchSetting, corpus: pathlib.Path) -> Run:
  """As a streamed run does it."""
  data, vocab_size = {'corpus': str(corpus)}, setting.vocab_size

  def run() -> dict[str, float]:
    source = open_batches(data, corpus.parent, rows=setting.rows, length=setting.length, vocab_size=vocab_size)
    batch, _ = next(source.batches(0, None))
    return {'languages': len(source.languages), 'rows of the batch': len(batch['input_ids'])}

  return run


def prepare_seqio_mixture(setting: BatchSetting, corpus: pathlib.Path) -> Run:
  """The mixture of the same tasks, without this project's reader."""
  import seqio

  from tasks.feature_converters import PackedMlmFeatureConverter
  from tasks.text_tasks import add_wikipedia

  def run() -> dict[str, float]:
    add_wikipedia(corpus=str(corpus), vocabulary=str(corpus.parent / 'sentencepiece.model'))
    rows = seqio.get_dataset(
      'wikipedia',
      {'targets': setting.length},
      dataset_split='train',
      shuffle=False,
      feature_converter=PackedMlmFeatureConverter(vocab_size=setting.vocab_size, seed=0),
      trim_output_features=False,
    )
    batch = next(rows.batch(setting.rows).as_numpy_iterator())
    languages = len(seqio.MixtureRegistry.get('wikipedia').tasks)
    return {'languages': languages, 'rows of the batch': len(batch['input_ids'])}

  return run


def opening_candidates(setting: BatchSetting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  arguments, work = (setting, make_many_languages(setting, scratch)), {'openings': 1.0}
  return [
    Candidate(OURS, prepare_opening, arguments, work),
    Candidate(SEQIO_MIXTURE, prepare_seqio_mixture, arguments, work),
  ]


OPENING = Benchmark(
  {'rembert': BatchSetting(32, 512, batches=1, detail='110 languages, V 5,000')}, opening_candidates, warm_up_runs=0
)


# --- masking ----------------------------------------------------------------------------------------------------------


def random_rows(setting: BatchSetting) -> np.ndarray:
  """Two documents per row, int32 [B, S]."""
  ids_BxS = np.random.default_rng(0).integers(SPECIAL.first_piece, MASKED_VOCABULARY, (setting.rows, setting.length))
  middle = setting.length // 2
  ids_BxS[:, [0, middle]], ids_BxS[:, [middle - 1, -1]] = SPECIAL.cls, SPECIAL.sep
  return ids_BxS.astype(np.int32)


def prepare_masking(setting: BatchSetting, config: MaskingConfig) -> Run:
  """As in pre-training; words have 1.7 tokens on average."""
  ids_BxS = random_rows(setting)
  begins_word_V = np.random.default_rng(1).random(MASKED_VOCABULARY) < 0.6
  options = {'special': SPECIAL, 'vocab_size': MASKED_VOCABULARY, 'config': config, 'begins_word_V': begins_word_V}

  def run() -> None:
    for step in range(setting.batches):
      mask_rows(ids_BxS, seed=0, stream=0, step=step, first_row=0, **options)

  return run


def prepare_row_by_row(setting: BatchSetting) -> Run:
  """A generator, a permutation and a few small arrays per row."""
  ids_BxS, config = random_rows(setting), MaskingConfig()
  slots = config.slots(setting.length)

  def masked(ids_S: np.ndarray, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    length = np.count_nonzero(ids_S != SPECIAL.pad)
    candidates = np.flatnonzero((ids_S != SPECIAL.pad) & (ids_S != SPECIAL.cls) & (ids_S != SPECIAL.sep))
    count = min(slots, len(candidates), max(1, round(length * config.rate)))
    chosen = np.sort(random.permutation(candidates)[:count])
    kind, replacements = random.random(count), random.integers(SPECIAL.first_piece, MASKED_VOCABULARY, count)
    replaced = np.where(kind < config.mask_share + config.random_share, replacements, ids_S[chosen])
    shown_S = ids_S.copy()
    shown_S[chosen] = np.where(kind < config.mask_share, SPECIAL.mask, replaced)
    positions, targets, weights = np.zeros(slots, np.int32), np.zeros(slots, np.int32), np.zeros(slots, np.float32)
    positions[:count], targets[:count], weights[:count] = chosen, ids_S[chosen], 1
    return shown_S, positions, targets, weights

  def run() -> None:
    for step in range(setting.batches):
      generators = (
        np.random.Generator(np.random.Philox(key=(0, 0), counter=(0, step, row, 0))) for row in range(setting.rows)
      )
      for field in zip(*map(masked, ids_BxS, generators), strict=True):
        np.stack(field)

  return run


def prepare_collator(setting: BatchSetting) -> Run:
  """`DataCollatorForLanguageModeling`, given the places of special tokens; otherwise it would find them in Python."""
  from transformers import DataCollatorForLanguageModeling

  class Tokenizer:
    """All that the collator needs of one."""

    mask_token, mask_token_id = '[MASK]', SPECIAL.mask

    def __len__(self) -> int:
      return MASKED_VOCABULARY

  collator = DataCollatorForLanguageModeling(Tokenizer(), return_tensors='np')
  ids_BxS = random_rows(setting)

  def run() -> None:
    for _ in range(setting.batches):
      collator.numpy_mask_tokens(ids_BxS.copy(), (ids_BxS == SPECIAL.cls) | (ids_BxS == SPECIAL.sep))

  return run


def masking_setting(rows: int, length: int, batches: int) -> BatchSetting:
  """Batches of the released vocabulary."""
  detail = f'{MaskingConfig().slots(length)} masked a row · V {MASKED_VOCABULARY:,}'
  return BatchSetting(rows, length, batches, detail, MASKED_VOCABULARY)


def masking_candidates(setting: BatchSetting, scratch: pathlib.Path) -> list[Candidate]:
  """This project first."""
  del scratch
  work = {unit: setting.work[unit] for unit in ('tokens', 'rows')}  # compared by tokens
  candidate = functools.partial(Candidate, work=work, one_core=True)
  return [
    candidate(OURS, prepare_masking, (setting, MaskingConfig())),
    candidate(WHOLE_WORDS, prepare_masking, (setting, MaskingConfig(whole_word=True))),
    candidate(SPANS, prepare_masking, (setting, MaskingConfig(whole_word=True, ngram=3))),
    candidate(ROW_BY_ROW, prepare_row_by_row, (setting,)),
    candidate(HUGGING_FACE, prepare_collator, (setting,)),
  ]


MASKING = Benchmark(
  {'small': masking_setting(32, 64, batches=800), 'base': masking_setting(64, 512, batches=100)}, masking_candidates
)
