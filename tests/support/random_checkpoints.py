"""Fixtures: random checkpoints of this project, small, of every head."""

import dataclasses
import functools
import math
import shutil

import numpy as np
import pytest
from etils import epath

import rembert
from rembert.checkpoint.load import open_source, save_model
from rembert.convert.tensor_names import Source
from rembert.model.config import RemBertConfig
from rembert.model.heads import parameter_shapes
from tasks.vocabulary import train_vocabulary

TINY = RemBertConfig(
  vocab_size=331,
  input_embedding_size=18,
  output_embedding_size=43,
  hidden_size=32,
  num_hidden_layers=3,
  num_attention_heads=4,
  intermediate_size=37,
  max_position_embeddings=48,
)
LABELS = ('O', 'B-PER', 'I-PER')


def random_leaves(config: RemBertConfig, head: str | None, *, has_pooler: bool) -> dict[str, np.ndarray]:
  """Every parameter random, padding rows zero."""
  random = np.random.default_rng(0)
  leaves = {}
  for path, shape in parameter_shapes(head, config, num_labels=len(LABELS), add_pooler=has_pooler).items():
    leaf = random.standard_normal(math.prod(shape), np.float32).reshape(shape)
    if path in ('encoder/embeddings/word/embedding', 'mlm/output_embedding', 'mlm/bias'):
      leaf[config.vocab_size :] = 0
    leaves[path] = leaf
  return leaves


@pytest.fixture(scope='session')
def written_run(tmp_path_factory):
  """Workdirs of random models, each written once; not to be changed. Fields that differ from `TINY` are arguments."""

  @functools.cache
  def write(head: str | None = 'mlm', *, has_pooler: bool = False, **fields):
    workdir, config = tmp_path_factory.mktemp('written') / 'run', dataclasses.replace(TINY, **fields)
    labels = LABELS if head in ('classification', 'tagging') else ()
    save_model(workdir, random_leaves(config, head, has_pooler=has_pooler), config, head, labels)
    return workdir

  return write


@pytest.fixture
def saved(written_run, tmp_path):
  """A copy of a workdir of `written_run`, opened."""

  def save(head: str | None = 'mlm', *, name: str = 'run', **fields) -> Source:
    return open_source(shutil.copytree(written_run(head, **fields), tmp_path / name))

  return save


def leaves_of(model: Source) -> dict[str, np.ndarray]:
  """The parameters of a model of the fixture `saved`, as they were written."""
  return random_leaves(model.config, model.head, has_pooler='encoder/pooler/kernel' in model.tensors)


@pytest.fixture(scope='session')
def assert_same():
  """Two sets of parameters are the same bitwise, names and all."""

  def check(ours, theirs):
    assert ours.keys() == theirs.keys()
    different = [path for path in ours if not np.array_equal(ours[path], theirs[path])]
    assert not different

  return check


@pytest.fixture(scope='session')
def small_vocabulary(tmp_path_factory):
  """A SentencePiece model of 590 pieces, trained on one sentence."""
  file = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  train_vocabulary(['der Fluss fließt durch die Stadt und in das Meer'] * 50, file, size=590)
  return file


@pytest.fixture(scope='session')
def random_run(small_vocabulary, tmp_path_factory):
  """The workdir of a random masked-language model of 700 pieces, with a vocabulary of 590; not to be changed."""
  workdir, config = tmp_path_factory.mktemp('random') / 'run', dataclasses.replace(TINY, vocab_size=700)
  save_model(workdir, random_leaves(config, 'mlm', has_pooler=False), config, 'mlm')
  (workdir / 'vocabulary').mkdir()
  shutil.copy(small_vocabulary, workdir / 'vocabulary' / 'sentencepiece.model')
  return workdir


@pytest.fixture(scope='session')
def random_encoder(random_run):
  """The encoder of `random_run`, loaded; what one test has compiled the others need not."""
  return rembert.load(random_run)


@pytest.fixture
def saved_with_vocabulary(random_run, tmp_path):
  """A copy of `random_run`, to be changed."""
  return epath.Path(shutil.copytree(random_run, tmp_path / 'run'))
