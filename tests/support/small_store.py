"""Fixture: a token store of three languages of the sample corpus, made by the command line."""

import dataclasses
import pathlib

import pytest
from small_corpora import sample_corpus

from tasks.token_store.__main__ import main
from tasks.vocabulary import sample_text, train_vocabulary

SAMPLE = pathlib.Path(__file__).resolve().parents[2] / 'tasks' / 'wikipedia' / 'sample'
LANGUAGES = ('el', 'sw', 'th')


@dataclasses.dataclass(frozen=True)
class SmallStore:
  """Its directory, and the command that made it, without the output."""

  folder: pathlib.Path
  vocabulary: pathlib.Path
  command: list[str]


@pytest.fixture(scope='session')
def small_store(tmp_path_factory) -> SmallStore:
  """Rows of 64, a tenth of the documents held out, about two shards a language."""
  folder = tmp_path_factory.mktemp('store')
  vocabulary = folder / 'sentencepiece.model'
  text = sample_text(sample_corpus(LANGUAGES), dict.fromkeys(LANGUAGES, 50_000))
  train_vocabulary(text, vocabulary, size=1500, character_coverage=0.99)
  command = [
    f'--dumps={SAMPLE}',
    f'--languages={",".join(LANGUAGES)}',
    f'--vocabulary={vocabulary}',
    '--sequence_length=64',
    '--held_out=0.1',
    '--shard_mb=0.02',
  ]
  assert main([*command, f'--output={folder / "store"}']) == 0
  return SmallStore(folder / 'store', vocabulary, command)
