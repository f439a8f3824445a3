"""Stores as they are made: the same bytes whoever makes them, nothing twice, nothing lost in silence."""

import bz2
import json
import lzma
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from xml.sax.saxutils import escape

import numpy as np
import pytest
import sentencepiece
from prepared_datasets import prepare_dataset

from rembert.data.token_store import TokenStore
from tasks.token_store import pipeline, sources
from tasks.token_store.__main__ import main
from tasks.wikipedia.documents import is_held_out

ROOT = pathlib.Path(__file__).resolve().parents[3]
RIVER = 'Die Donau ist ein Fluss in Europa und mündet nach vielen Biegungen in das Schwarze Meer.'
TOWN = 'Die Stadt liegt am Ufer der Donau und hat einen alten Hafen mit vielen kleinen Schiffen.'
LAKE = 'Der See ist im Winter gefroren, und im Sommer baden dort die Kinder aus der ganzen Stadt.'


def files_of(folder):
  """Every file below a folder, with its bytes."""
  return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob('*')) if path.is_file()}


def page(title, text):
  return (
    f'<page><title>{escape(title)}</title><ns>0</ns><id>1</id><revision><text>{escape(text)}</text></revision></page>'
  )


def dump_of(*pages):
  return ('<mediawiki xml:lang="de">' + '\n'.join(pages) + '</mediawiki>').encode()


@pytest.fixture
def make(small_store, tmp_path):
  """Makes a store of a source folder; returns exit code and folder."""

  def make(source, *flags, name='store', kind='dumps'):
    command = [f'--{kind}={source}', f'--vocabulary={small_store.vocabulary}', '--sequence_length=32', *flags]
    return main([*command, f'--output={tmp_path / name}']), tmp_path / name

  return make


@pytest.fixture
def processor(small_store):
  return sentencepiece.SentencePieceProcessor(model_file=str(small_store.vocabulary))


@pytest.fixture
def texts(processor):
  """What stands in the rows of a split, decoded, document by document; long ones come in parts."""

  def texts(folder, language, split='train'):
    store = TokenStore(folder)
    documents = []
    for ids in store.read(language, split, range(store.rows(language, split))):
      for piece in np.split(ids, np.flatnonzero(ids == store.special.cls)):
        text = [int(index) for index in piece if index > store.special.mask]
        if text:
          documents.append(processor.decode(text))
    return documents

  return texts


# --- the same bytes ---------------------------------------------------------------------------------------------------


def test_making_a_store_again_changes_nothing(small_store, tmp_path, capsys):
  again = tmp_path / 'again'
  assert main([*small_store.command, f'--output={again}', '--group_mb=0.0001']) == 0
  assert files_of(again) == files_of(small_store.folder)
  before = {path: path.stat().st_mtime_ns for path in again.rglob('*')}
  assert main([*small_store.command, f'--output={again}']) == 0
  assert 'is complete' in capsys.readouterr().out
  assert {path: path.stat().st_mtime_ns for path in again.rglob('*')} == before


@pytest.mark.slow
def test_two_processes_make_the_same_bytes(small_store, tmp_path):
  command = [sys.executable, '-m', 'tasks.token_store', *small_store.command, f'--output={tmp_path / "two"}']
  subprocess.run([*command, '--workers=2'], cwd=ROOT, check=True, timeout=300, capture_output=True)
  assert files_of(tmp_path / 'two') == files_of(small_store.folder)


@pytest.mark.slow
def test_a_run_killed_after_its_first_language_goes_on_to_the_same_bytes(small_store, tmp_path):
  output = tmp_path / 'killed'
  command = [sys.executable, '-m', 'tasks.token_store', *small_store.command, f'--output={output}', '--group_mb=0.0001']
  process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
  while not list(output.glob('*/language.json')):
    assert process.poll() is None
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  process.wait()
  assert not (output / 'manifest.json').exists()
  done = {path: path.stat().st_mtime_ns for path in output.glob('*/language.json')}
  assert 0 < len(done) < 3
  subprocess.run(command, cwd=ROOT, check=True, timeout=300, capture_output=True)
  assert files_of(output) == files_of(small_store.folder)
  assert {path: path.stat().st_mtime_ns for path in done} == done


def test_the_order_and_number_of_files_does_not_matter(make, tmp_path):
  pages = [page(f'{index}', f'{text} {index}.') for index, text in enumerate([RIVER, TOWN, LAKE] * 5)]
  one, many = tmp_path / 'one', tmp_path / 'many'
  one.mkdir()
  many.mkdir()
  (one / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(*pages))
  for index, some in enumerate([pages[::-2], pages[-2::-2]]):
    (many / f'dewiki-{index}-pages-articles.xml').write_bytes(dump_of(*some))
  flags = ('--held_out=0.2', '--min_characters=20')
  stores = [make(folder, *flags, name=folder.name + '-store')[1] for folder in (one, many)]
  shards = [{name: content for name, content in files_of(store).items() if 'array_record' in name} for store in stores]
  assert shards[0]
  assert shards[0] == shards[1]


# --- what is in it ----------------------------------------------------------------------------------------------------


def test_documents_and_paragraphs_come_once(make, texts, tmp_path):
  dumps = tmp_path / 'dumps'
  dumps.mkdir()
  pages = [
    page('Donau', f'{RIVER}\n\n{TOWN}'),
    page('Donau, noch einmal', f'{RIVER}\n\n{TOWN}'),
    page('See', f'{LAKE}\n\n{TOWN}'),
    page('Kurz', 'Zu kurz.'),
  ]
  (dumps / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(*pages))
  counts = {}
  for dedupe in 'none', 'documents', 'paragraphs':
    code, folder = make(dumps, f'--dedupe={dedupe}', '--held_out=0', '--min_characters=20', name=dedupe)
    assert code == 0
    text = ' '.join(texts(folder, 'de'))
    counts[dedupe] = [text.replace(' ', '').count(part.replace(' ', '')[:12]) for part in (RIVER, TOWN, LAKE)]
    lost = TokenStore(folder).languages['de'].lost
    assert lost['too short'] == 1
    assert lost.get('repeated documents', 0) == (0 if dedupe == 'none' else 1)
    assert lost.get('repeated paragraphs', 0) == (1 if dedupe == 'paragraphs' else 0)
  assert counts == {'none': [2, 3, 1], 'documents': [1, 2, 1], 'paragraphs': [1, 1, 1]}


def test_held_out_documents_are_chosen_by_their_text(make, processor, tmp_path):
  folder = tmp_path / 'text'
  folder.mkdir()
  documents = [f'{RIVER} Nummer {index}.' for index in range(60)]
  (folder / 'de.txt').write_text('\n\n'.join(documents), encoding='utf-8')
  code, store = make(folder, '--held_out=0.3', '--min_characters=20', '--sequence_length=64', kind='text')
  assert code == 0
  chosen = [is_held_out(text, 0.3) for text in documents]
  counts = TokenStore(store).languages['de'].documents
  assert (counts['validation'], counts['train']) == (sum(chosen), 60 - sum(chosen))
  expected = sum(len(processor.encode(text)) for text, is_out in zip(documents, chosen, strict=True) if is_out)
  assert TokenStore(store).languages['de'].tokens['validation'] == expected


def test_plain_text_is_read_from_archives_and_normalised(make, texts, tmp_path):
  folder = tmp_path / 'text'
  folder.mkdir()
  (folder / 'sw.txt.xz').write_bytes(
    lzma.compress('Mto huu unatiririka e\u0301 \t haraka sana.\nUna samaki.\n\n'.encode())
  )
  code, store = make(folder, '--held_out=0', '--min_characters=5', kind='text')
  assert code == 0
  [text] = texts(store, 'sw')
  assert '\u00e9 haraka' in text


@pytest.mark.parametrize(
  ('name', 'config', 'split'),
  [
    ('wikipedia/20230601.{language}', '20230601.de', 'train'),
    ('wiki40b/{language}', 'de', 'train'),
    ('c4/multilingual[{language}]', 'multilingual', 'de'),
  ],
  ids=['wikipedia', 'wiki40b', 'c4'],
)
def test_datasets_of_tfds_are_read_in_ranges(make, texts, processor, tmp_path, monkeypatch, name, config, split):
  monkeypatch.setattr(sources, '_EXAMPLES_PER_PART', 7)
  dataset = name.split('/')[0]
  mark = '\n_START_ARTICLE_\nTitel\n_START_PARAGRAPH_\n' if dataset == 'wiki40b' else ''
  documents = [{'title': f'T{index}', 'text': f'{mark}{RIVER} Nummer {index}.'} for index in range(20)]
  prepare_dataset(dataset, {config: documents}, tmp_path / 'tfds', split=split)
  flags = (f'--tfds_data_dir={tmp_path / "tfds"}', '--languages=de', '--held_out=0', '--min_characters=20')
  code, store = make(name, *flags, '--dedupe=documents', kind='tfds')
  assert code == 0
  assert TokenStore(store).languages['de'].documents['train'] == 20
  assert 'START' not in ' '.join(texts(store, 'de'))
  expected = sum(len(processor.encode(f'{RIVER} Nummer {index}.')) for index in range(20))
  title = 20 * len(processor.encode('Titel\nx')) - 20 * len(processor.encode('x')) if mark else 0
  assert TokenStore(store).languages['de'].tokens['train'] == expected + title


# --- bad input --------------------------------------------------------------------------------------------------------


def test_bad_dumps_cost_what_is_bad_in_them_and_are_counted(make, tmp_path):
  dumps = tmp_path / 'dumps'
  dumps.mkdir()
  good = [page(f'{index}', f'{text} {index}.') for index, text in enumerate([RIVER, TOWN, LAKE])]
  write = lambda name, content: (dumps / f'{name}-pages-articles.xml.bz2').write_bytes(content)
  write('dewiki-1', bz2.compress(dump_of(*good)))
  write('dewiki-2', bz2.compress(dump_of(*good)))  # the same again
  write('dewiki-3', bz2.compress(dump_of(*good)[:-40]))  # no closing tag, last page cut
  write('dewiki-4', bz2.compress(dump_of('<page><title>kaputt</page>', page('gut', f'{RIVER} Und mehr.'))))
  (dumps / 'dewiki-5-pages-articles.xml').write_bytes(
    ('\ufeff' + dump_of(page('breit', f'{LAKE} Und noch mehr.')).decode()).encode('utf-16')
  )
  write('dewiki-6', b'BZh9 no archive')
  code, store = make(dumps, '--held_out=0', '--min_characters=20', '--dedupe=documents')
  assert code == 0
  part = TokenStore(store).languages['de']
  assert part.documents['train'] == 5
  assert part.lost['repeated documents'] == 5
  assert part.lost['damaged dumps'] == 1
  assert part.lost['truncated dumps'] >= 1
  assert part.lost['broken pages'] >= 1


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    (['--dumps=EMPTY'], 'no dump found'),
    (['--dumps=SAMPLE', '--languages=xx'], 'xx'),
    (['--text=EMPTY'], 'no text files'),
    (['--tfds=wikipedia/x', '--languages=de'], 'a dataset needs {language}'),
    (['--dumps=SAMPLE', '--sequence_length=4'], 'sequence_length must lie between'),
    (['--dumps=SAMPLE', '--held_out=2'], 'held_out must lie between'),
    (['--dumps=SAMPLE', '--vocabulary=EMPTY'], 'the vocabulary cannot be read'),
  ],
)
def test_what_cannot_be_made_is_told_and_nothing_is_written(small_store, tmp_path, capsys, flags, words):
  (tmp_path / 'empty').mkdir()
  sample = str(ROOT / 'tasks' / 'wikipedia' / 'sample')
  flags = [flag.replace('EMPTY', str(tmp_path / 'empty')).replace('SAMPLE', sample) for flag in flags]
  base = [] if any('--vocabulary' in flag for flag in flags) else [f'--vocabulary={small_store.vocabulary}']
  assert main([*base, *flags, f'--output={tmp_path / "store"}']) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'store').exists()


def test_a_folder_with_another_store_is_refused_with_the_difference(small_store, tmp_path, capsys):
  shutil.copytree(small_store.folder, tmp_path / 'store')
  before = files_of(tmp_path / 'store')
  assert main([*small_store.command, '--sequence_length=128', f'--output={tmp_path / "store"}']) == 2
  assert 'made otherwise: sequence_length' in capsys.readouterr().err
  assert files_of(tmp_path / 'store') == before


def test_a_disk_that_fills_up_leaves_no_store_that_looks_whole(small_store, tmp_path, capsys, monkeypatch):
  written = []

  def full(rows, path, dtype, write=pipeline.write_rows):
    written.append(path)
    if len(written) > 3:
      raise OSError('No space left on device')
    return write(rows, path, dtype)

  with monkeypatch.context() as patched:
    patched.setattr(pipeline, 'write_rows', full)
    assert main([*small_store.command, '--group_mb=0.0001', f'--output={tmp_path / "store"}']) == 1
  assert 'No space left on device' in capsys.readouterr().err
  assert not (tmp_path / 'store' / 'manifest.json').exists()
  assert main([*small_store.command, f'--output={tmp_path / "store"}']) == 0
  assert files_of(tmp_path / 'store') == files_of(small_store.folder)


# --- shown ------------------------------------------------------------------------------------------------------------


def test_the_table_names_every_language_and_the_manifest_what_made_it(small_store, capsys):
  assert main([*small_store.command, f'--output={small_store.folder}']) == 0
  shown = capsys.readouterr().out
  assert all(f'\n {language} ' in shown for language in ('el', 'sw', 'th'))
  manifest = json.loads((small_store.folder / 'manifest.json').read_text())
  assert {'apache-beam', 'array-record', 'sentencepiece'} == set(manifest['versions'])
  assert manifest['recipe']['sequence_length'] == 64
  assert os.fspath(small_store.folder) not in json.dumps(manifest)
