"""Corpora as they are made: the same bytes with Beam or without, with one worker or two, at once or after a kill."""

import itertools
import pathlib
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from killed_commands import assert_killed_command_resumes
from made_up_dumps import LAKE, RIVER, TOWN, dump_of, files_of, page
from small_corpora import corpus_of_dumps, sample_corpus

from rembert.data.config import DataConfig
from rembert.errors import RunError, UsageError
from rembert.tracking.console import Console
from tasks.corpus import build
from tasks.corpus import format as formats
from tasks.corpus.__main__ import main
from tasks.corpus.build import (
  CorpusConfig,
  clean,
  digest_of,
  find_corpus,
  first_of,
  is_held_out,
  keep_paragraphs,
  numbers_of_shards,
  paragraph_places,
)
from tasks.corpus.format import Document, open_corpus
from tasks.corpus.sources import Lost, Part, RawDocument

ROOT = pathlib.Path(__file__).resolve().parents[3]
LANGUAGES = ('el', 'sw', 'th')
CONSOLE = Console(is_quiet=True)
COMMAND = ['--dumps=sample', '--languages=el,sw,th', '--held_out=0.1', '--shard_mb=0.02']


@pytest.fixture(scope='module')
def in_process(tmp_path_factory):
  """The folder of a corpus made without Beam, about two shards a language."""
  folder = tmp_path_factory.mktemp('local') / 'corpus'
  corpus_of_dumps('sample', folder, LANGUAGES, held_out=0.1, shard_bytes=int(0.02 * (1 << 20)))
  return folder


@pytest.fixture
def dumps(tmp_path):
  """A folder with repeated documents and paragraphs, a short page, a broken one, and one that is not UTF-8."""
  folder = tmp_path / 'dumps'
  folder.mkdir()
  pages = [
    page('Donau', f'{RIVER}\n\n{TOWN}', 3),
    page('Donau, noch einmal', f'{RIVER}\n\n{TOWN}', 2),
    page('See', f'{LAKE}\n\n{TOWN}', 4),
    page('Kurz', 'Zu kurz.', 5),
    '<page><title>kaputt</page>',
  ]
  (folder / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(*pages))
  return folder


def local(dumps, folder, **options):
  return corpus_of_dumps(dumps, folder, **{'held_out': 0, 'min_characters': 20} | options)


def with_beam(dumps, folder, *flags):
  assert main([f'--dumps={dumps}', f'--output={folder}', '--held_out=0', '--min_characters=20', *flags]) == 0
  return open_corpus(folder)


# --- the same bytes ---------------------------------------------------------------------------------------------------


def test_beam_writes_what_this_process_writes_and_a_second_run_writes_nothing(in_process, tmp_path, capsys):
  folder = tmp_path / 'corpus'
  assert main([*COMMAND, f'--output={folder}', '--group_mb=0.0001']) == 0
  assert files_of(folder) == files_of(in_process)
  before = {path: path.stat().st_mtime_ns for path in folder.rglob('*')}
  assert main([*COMMAND, f'--output={folder}']) == 0
  assert {path: path.stat().st_mtime_ns for path in folder.rglob('*')} == before
  assert all(f'\n {language} ' in capsys.readouterr().out for language in ('el',))


@pytest.mark.parametrize('dedupe', ['documents', 'paragraphs'])
def test_beam_deduplicates_and_counts_as_this_process_does(dumps, tmp_path, dedupe):
  corpus = local(dumps, tmp_path / 'local', dedupe=dedupe)
  with_beam(dumps, tmp_path / 'beam', f'--dedupe={dedupe}')
  assert files_of(tmp_path / 'beam') == files_of(tmp_path / 'local')
  text = ' '.join(corpus.texts('de', 'train'))
  counts = {'documents': [1, 2, 1], 'paragraphs': [1, 1, 1]}[dedupe]
  assert [text.count(paragraph) for paragraph in (RIVER, TOWN, LAKE)] == counts
  lost = {'broken pages': 1, 'too short': 1, 'repeated documents': 1}
  lost |= {'repeated paragraphs': 1} if dedupe == 'paragraphs' else {}
  assert corpus.languages['de'].lost == lost


def test_the_order_and_number_of_files_and_where_they_are_do_not_matter(tmp_path):
  pages = [page(f'{index}', f'{text} {index % 11}.', index) for index, text in enumerate([RIVER, TOWN, LAKE] * 9)]
  one, many = tmp_path / 'one', tmp_path / 'many'
  one.mkdir()
  many.mkdir()
  (one / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(*pages))
  for index, some in enumerate([pages[::-2], pages[-2::-2]]):
    (many / f'dewiki-{index}-pages-articles.xml').write_bytes(dump_of(*some))
  corpora = [local(folder, tmp_path / f'{folder.name}-corpus', held_out=0.2) for folder in (one, many)]
  shards = [files_of(corpus.folder / 'corpus') for corpus in corpora]
  assert shards[0]
  assert shards[0] == shards[1]
  moved = shutil.copytree(one, tmp_path / 'elsewhere')
  again = [local(moved, tmp_path / folder, held_out=0.2) for folder in ('one-corpus', 'other')]
  assert {corpus.fingerprint for corpus in again} == {corpora[0].fingerprint}


@pytest.mark.slow
def test_two_processes_make_the_same_bytes(in_process, tmp_path):
  command = [sys.executable, '-m', 'tasks.corpus', *COMMAND, f'--output={tmp_path / "two"}', '--workers=2']
  subprocess.run(command, cwd=ROOT, check=True, timeout=300, capture_output=True)
  assert files_of(tmp_path / 'two') == files_of(in_process)


@pytest.mark.slow
def test_a_run_killed_after_its_first_language_is_resumed_to_the_same_bytes(in_process, tmp_path):
  output = tmp_path / 'killed'
  command = [sys.executable, '-m', 'tasks.corpus', *COMMAND, f'--output={output}', '--group_mb=0.0001']
  assert_killed_command_resumes(command, output, parts='statistics/*.json', marker='corpus.json', expected=in_process)


def test_a_disk_that_fills_up_leaves_no_corpus_that_looks_complete(in_process, tmp_path, capsys, monkeypatch):
  written = []

  def full(folder, language, *rest, write=formats.write_shard):
    written.append(language)
    if len(written) > 3:
      raise OSError('No space left on device')
    return write(folder, language, *rest)

  with monkeypatch.context() as patched:
    patched.setattr('tasks.corpus.build.write_shard', full)
    assert main([*COMMAND, '--group_mb=0.0001', f'--output={tmp_path / "corpus"}']) == 1
    assert 'No space left on device' in capsys.readouterr().err
    with pytest.raises(RunError, match='the corpus could not be written: No space left on device'):
      corpus_of_dumps('sample', tmp_path / 'local', LANGUAGES)
  with pytest.raises(UsageError, match='unfinished: 1 languages'):
    open_corpus(tmp_path / 'corpus')
  assert main([*COMMAND, f'--output={tmp_path / "corpus"}']) == 0
  assert files_of(tmp_path / 'corpus') == files_of(in_process)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
  ('flags', 'words'), [(['--dumps=EMPTY'], 'no dump found'), (['--dumps=sample', '--languages=xx'], 'xx')]
)
def test_what_cannot_be_made_is_one_error_and_nothing_is_written(tmp_path, capsys, flags, words):
  (tmp_path / 'empty').mkdir()
  flags = [flag.replace('EMPTY', str(tmp_path / 'empty')) for flag in flags]
  assert main([*flags, f'--output={tmp_path / "corpus"}']) == 2
  assert words in capsys.readouterr().err
  assert not (tmp_path / 'corpus').exists()


def test_only_what_follows_two_dashes_is_passed_to_beam(tmp_path, monkeypatch):
  passed = []

  def note(self, build, where):
    passed.append(self.flags)
    raise RunError('noted')

  monkeypatch.setattr('tasks.corpus.build.BeamRunner.run', note)
  main(['--dumps=sample', '--languages=sw', f'--output={tmp_path / "corpus"}', '--', '--project=p', '--region=r'])
  assert passed == [('--project=p', '--region=r')]


def test_a_folder_with_another_corpus_is_refused_with_the_difference(in_process, tmp_path, capsys):
  shutil.copytree(in_process, tmp_path / 'corpus')
  before = files_of(tmp_path / 'corpus')
  assert main([*COMMAND, '--min_characters=50', f'--output={tmp_path / "corpus"}']) == 2
  assert 'built with different options: min_characters' in capsys.readouterr().err
  assert files_of(tmp_path / 'corpus') == before


def test_more_text_than_one_process_takes_is_refused_with_the_command(dumps, tmp_path, monkeypatch):
  monkeypatch.setattr(build, 'LARGEST', 100)
  data = DataConfig(dumps=str(dumps), languages=('de',), held_out=0.1)
  with pytest.raises(UsageError, match='too much text to prepare in this process') as caught:
    find_corpus(data, tmp_path / 'run', CONSOLE)()
  assert 'de: ' in caught.value.where
  command = f'python -m tasks.corpus --dumps={dumps} --languages=de --held_out=0.1 --min_characters=100'
  assert caught.value.fix[0] == f'{command} --output=CORPUS; then --gin.data.corpus=CORPUS'
  assert not (tmp_path / 'run').exists()
  made = with_beam(dumps, tmp_path / 'corpus')
  assert local(dumps, tmp_path / 'corpus') == made


@pytest.mark.parametrize(
  ('pages', 'held_out'), [([], 0), ([page('Kurz', 'Zu kurz.')], 0), ([page('Donau', RIVER)], 1 - 1e-12)]
)
def test_a_corpus_without_text_is_an_error_that_says_what_to_do(tmp_path, pages, held_out):
  (tmp_path / 'dewiki-1-pages-articles.xml').write_bytes(dump_of(*pages))
  for _ in range(2):  # it is no corpus the second time either
    with pytest.raises(UsageError, match='no text to train on') as caught:
      local(tmp_path, tmp_path / 'corpus', held_out=held_out)
    assert 'pages-articles' in caught.value.fix[0]


def test_without_beam_there_is_one_error_with_the_command_that_installs_it(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr('tasks.beam.importlib.util.find_spec', lambda name: None)
  assert main(['--dumps=sample', f'--output={tmp_path / "corpus"}']) == 2
  assert 'Apache Beam is not installed' in capsys.readouterr().err
  assert not (tmp_path / 'corpus').exists()


# --- the corpus of a streamed run: named, or made in the workdir once -------------------------------------------------


def test_dumps_become_a_corpus_in_the_workdir_once(dumps, tmp_path):
  data = DataConfig(dumps=str(dumps), held_out=0, min_characters=20)
  corpus = find_corpus(data, tmp_path / 'run', CONSOLE)()
  assert corpus.folder == tmp_path / 'run' / 'corpus'
  assert corpus.languages == local(dumps, tmp_path / 'corpus').languages
  before = {path: path.stat().st_mtime_ns for path in (tmp_path / 'run').rglob('*')}
  assert find_corpus(data, tmp_path / 'run', CONSOLE)() == corpus
  assert {path: path.stat().st_mtime_ns for path in (tmp_path / 'run').rglob('*')} == before


def test_a_corpus_that_is_named_is_opened_whatever_the_source(tmp_path):
  named = sample_corpus(('el', 'sw'))
  for source in 'dumps', 'tfds':
    data = DataConfig(source=source, corpus=str(named.folder), languages=('sw',))
    corpus = find_corpus(data, tmp_path, CONSOLE)()
    assert (list(corpus.languages), corpus.fingerprint) == (['sw'], named.fingerprint)
  assert not files_of(tmp_path)


def test_text_in_another_encoding_is_counted_and_reported_with_a_fix(tmp_path, capsys):
  folder = tmp_path / 'text'
  folder.mkdir()
  (folder / 'de.txt').write_bytes('Die Wörter dieses Satzes sind groß und schön.\n\n'.encode('latin-1') * 5)
  assert main([f'--text={folder}', f'--output={tmp_path}/corpus', '--min_characters=1']) == 2
  error = capsys.readouterr().err
  assert 'the corpus holds no text to train on; left out are not UTF-8: 5' in error
  assert 'iconv -f LATIN1 -t UTF-8' in error


# --- documents: what is kept of a text, and where, depends on the text alone ------------------------------------------

CLEAN = CorpusConfig(min_characters=5)
PROSE = "Die '''Donau''' ist ein [[Fluss]] in Europa."


def raw(text, namespaces=None):
  return RawDocument('de', 'T', '1', text, namespaces)


def document(*paragraphs, title='', number=''):
  return Document('de', digest_of('\n'.join(paragraphs)), False, title, number, paragraphs)


# --- cleaning ---------------------------------------------------------------------------------------------------------


def test_an_article_becomes_a_document_of_clean_paragraphs():
  text = f'{{{{Infobox}}}}\n{PROSE}[[Ablage:X.jpg|thumb|a caption]]\n\n== Lauf ==\n{PROSE}\n== Weblinks ==\n* a b c'
  found = clean(raw(text, {6: 'Ablage'}), CLEAN)
  assert found.paragraphs == ('Die Donau ist ein Fluss in Europa.',) * 2
  assert (found.title, found.id, found.digest) == ('T', '1', digest_of(found.text))


def test_plain_text_becomes_nfc_with_single_spaces_without_marks_of_wiki40b():
  found = clean(raw('Mto e\u0301 \t haraka\u00a0 sana.\n\nUna  samaki.'), CLEAN)
  assert found.text == 'Mto \u00e9 haraka sana.\nUna samaki.'
  text = '\n_START_ARTICLE_\nTitel\n_START_PARAGRAPH_\nEin Absatz._NEWLINE_Noch einer.'
  assert clean(raw(text), CLEAN).paragraphs == ('Titel', 'Ein Absatz.', 'Noch einer.')


def test_short_documents_and_broken_characters_are_losses():
  assert clean(raw('kurz'), CLEAN) == Lost('de', 'too short')
  text = b'Stra\xdfe am Fluss'.decode('utf-8', 'surrogateescape')
  assert clean(raw(text), CLEAN) == Lost('de', 'not UTF-8')
  assert clean(Lost('de', 'broken pages', 3), CLEAN) == Lost('de', 'broken pages', 3)


# --- splits and shards ------------------------------------------------------------------------------------------------


def test_whether_a_document_is_held_out_depends_on_its_text_alone():
  texts = [f'Fluss {i}' for i in range(2000)]
  assert 150 < sum(is_held_out(text, 0.1) for text in texts) < 250
  assert all(is_held_out(text, 0.3) for text in texts if is_held_out(text, 0.1))  # a larger share holds the smaller
  assert clean(raw('Fluss 0'), CorpusConfig(held_out=0.5, min_characters=1)).is_held_out == is_held_out('Fluss 0', 0.5)


def test_hashes_are_those_that_stores_were_made_with():
  assert digest_of('Fluss').hex() == '48b860fb620debbed98631fc70f146e8'
  assert [is_held_out(text, 0.5) for text in ('Fluss', 'Stadt', 'See', 'Meer')] == [True, True, False, False]


def test_shards_follow_from_the_bytes_of_input():
  parts = [Part('de', 'dump', 'a', size=100), Part('de', 'dump', 'b', size=101), Part('sw', 'text', 'c', size=1)]
  config = CorpusConfig(held_out=0.5, shard_bytes=50)
  assert numbers_of_shards(parts, config) == {
    'de': {'train': 5, 'validation': 2},
    'sw': {'train': 1, 'validation': 1},
  }


# --- deduplication ----------------------------------------------------------------------------------------------------


@given(st.permutations([('9', 'a'), ('10', 'z'), ('10', 'b'), ('', 'c')]))
def test_of_documents_with_one_text_the_smallest_id_and_title_is_kept_in_any_order(names):
  kept, lost = first_of(document(PROSE, title=title, number=number) for number, title in names)
  assert (kept.id, kept.title) == ('', 'c')
  assert lost == Lost('de', 'repeated documents', 3)
  assert list(first_of([document(PROSE)])) == [document(PROSE)]


@given(st.lists(st.lists(st.sampled_from('abcdef'), min_size=1, max_size=5), min_size=1, max_size=8))
def test_every_paragraph_is_kept_at_exactly_one_place_in_any_order(texts):
  documents = [document(*paragraphs) for paragraphs in {tuple(paragraphs) for paragraphs in texts}]

  def kept(documents):
    places = sorted(itertools.chain.from_iterable(map(paragraph_places, documents)), reverse=True)
    least = dict(places)  # the least place comes last
    indices = {each.digest: [index for digest, index in least.values() if digest == each.digest] for each in documents}
    config = CorpusConfig(min_characters=1)
    found = [found for each in documents for found in keep_paragraphs([each, *indices[each.digest]], config)]
    return {each.digest: each for each in found if isinstance(each, Document)}, found

  left, found = kept(documents)
  assert left == kept(documents[::-1])[0]
  paragraphs = [paragraph for each in left.values() for paragraph in each.paragraphs]
  assert sorted(paragraphs) == sorted({paragraph for text in texts for paragraph in text})
  repeated = sum(each.count for each in found if isinstance(each, Lost) and each.reason == 'repeated paragraphs')
  assert repeated + len(paragraphs) == sum(len(each.paragraphs) for each in documents)


def test_a_document_of_which_too_little_is_left_is_a_loss():
  found = list(keep_paragraphs([document('eins zwei', 'x'), 1], CLEAN))
  assert found == [Lost('de', 'repeated paragraphs', 1), Lost('de', 'too short')]
