"""Stores as they are made: the same bytes from any runner, nothing twice, nothing lost in silence."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece
from killed_commands import assert_killed_command_resumes
from made_up_dumps import files_of

from rembert.data.packing import pack
from rembert.data.token_store import TokenStore
from tasks.corpus.format import open_corpus, read_texts
from tasks.token_store import build
from tasks.token_store.__main__ import main

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture
def processor(small_store):
  return sentencepiece.SentencePieceProcessor(model_file=str(small_store.vocabulary))


# --- the same bytes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_make_the_same_bytes(small_store, tmp_path):
  command = [sys.executable, '-m', 'tasks.token_store', *small_store.command, f'--output={tmp_path / "two"}']
  subprocess.run([*command, '--workers=2'], cwd=ROOT, check=True, timeout=300, capture_output=True)
  assert files_of(tmp_path / 'two') == files_of(small_store.folder)


@pytest.mark.slow
def test_a_run_killed_after_its_first_language_is_resumed_to_the_same_bytes(small_store, tmp_path):
  output = tmp_path / 'killed'
  command = [sys.executable, '-m', 'tasks.token_store', *small_store.command, f'--output={output}', '--group_mb=0.0001']
  assert_killed_command_resumes(
    command, output, parts='*/language.json', marker='manifest.json', expected=small_store.folder
  )


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_a_shard_of_the_store_is_a_shard_of_the_corpus_in_its_order(small_store, processor):
  corpus, store = open_corpus(small_store.folder / 'corpus'), TokenStore(small_store.folder)
  for language, counts in corpus.languages.items():
    part = store.languages[language]
    assert (part.documents['train'], part.documents['validation']) == (counts.documents, counts.held_out)
    assert (part.sentences, part.characters, part.lost) == (counts.sentences, counts.characters, counts.lost)
    for split in 'train', 'validation':
      files = corpus.shards(language, split)
      names = [shard.file for shard in store.languages[language].shards[split]]
      assert names == [f'{language}/{split}-{n:05}-of-{len(files):05}.array_record' for n in range(len(files))]
      expected = [
        row
        for file in files
        for row, _ in pack((np.array(processor.encode(text)) for text in read_texts(file)), 64, store.special)
      ]
      assert np.array_equal(store.read(language, split, range(store.rows(language, split))), expected)


def test_a_language_of_a_corpus_has_the_bytes_that_it_has_in_the_store_of_the_dumps(small_store, tmp_path):
  flags = [flag for flag in small_store.command if flag.startswith(('--vocabulary', '--sequence_length'))]
  corpus = f'--corpus={small_store.folder / "corpus"}'
  assert main([corpus, '--languages=th', *flags, f'--output={tmp_path / "one"}']) == 0
  assert list(TokenStore(tmp_path / 'one').languages) == ['th']
  assert files_of(tmp_path / 'one' / 'th') == files_of(small_store.folder / 'th')


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    (['--dumps=EMPTY'], 'no dump found'),
    (['--dumps=sample', '--languages=xx'], 'xx'),
    (['--corpus=EMPTY'], 'no corpus'),
    (['--corpus=EMPTY', '--held_out=0.1'], 'belong to the corpus'),
    (['--dumps=sample', '--vocabulary=EMPTY'], 'the vocabulary cannot be read'),
  ],
)
def test_invalid_stores_are_errors_and_write_nothing(small_store, tmp_path, capsys, flags, words):
  (tmp_path / 'empty').mkdir()
  flags = [flag.replace('EMPTY', str(tmp_path / 'empty')) for flag in flags]
  base = [] if any('--vocabulary' in flag for flag in flags) else [f'--vocabulary={small_store.vocabulary}']
  assert main([*base, *flags, f'--output={tmp_path / "store"}']) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'store').exists()


def test_a_folder_with_another_store_is_refused_with_the_difference(small_store, tmp_path, capsys):
  shutil.copytree(small_store.folder, tmp_path / 'store')
  before = files_of(tmp_path / 'store')
  assert main([*small_store.command, '--sequence_length=128', f'--output={tmp_path / "store"}']) == 2
  assert 'built with different options: sequence_length' in capsys.readouterr().err
  assert files_of(tmp_path / 'store') == before


def test_a_disk_that_fills_up_leaves_no_store_that_looks_complete_and_a_complete_one_is_not_made_again(
  small_store, tmp_path, capsys, monkeypatch
):
  written, store = [], tmp_path / 'store'

  def full(path, records, write=build.write_records):
    written.append(path)
    if len(written) > 3:
      raise OSError('No space left on device')
    return write(path, records)

  with monkeypatch.context() as patched:
    patched.setattr(build, 'write_records', full)
    assert main([*small_store.command, '--group_mb=0.0001', f'--output={store}']) == 1
  assert 'No space left on device' in capsys.readouterr().err
  assert not (store / 'manifest.json').exists()
  assert main([*small_store.command, f'--output={store}']) == 0
  assert files_of(store) == files_of(small_store.folder)
  before = {path: path.stat().st_mtime_ns for path in store.rglob('*')}
  assert main([*small_store.command, f'--output={store}']) == 0
  assert 'is complete' in capsys.readouterr().out
  assert {path: path.stat().st_mtime_ns for path in store.rglob('*')} == before


# --- shown ------------------------------------------------------------------------------------------------------------


def test_the_table_names_every_language_and_the_manifest_what_made_it(small_store, capsys):
  assert main([*small_store.command, f'--output={small_store.folder}']) == 0
  shown = capsys.readouterr().out
  assert all(f'\n {language} ' in shown for language in ('el', 'sw', 'th'))
  manifest = json.loads((small_store.folder / 'manifest.json').read_text())
  assert {'apache-beam', 'array-record', 'sentencepiece'} == set(manifest['versions'])
  assert manifest['recipe']['sequence_length'] == 64
  assert os.fspath(small_store.folder) not in json.dumps(manifest)
