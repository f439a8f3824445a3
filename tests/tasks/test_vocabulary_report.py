"""Reports on vocabularies: every number is the one that a plain count gives."""

import itertools
import json
import re

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from small_corpora import sample_corpus

from tasks import vocabulary, vocabulary_report
from tasks.vocabulary_report import PieceCounter, has_spaces, report

LANGUAGES = ('de', 'el', 'ja', 'th')
SIZE = 1500


@pytest.fixture(scope='module')
def corpus():
  return sample_corpus(LANGUAGES, 0.2)


@pytest.fixture(scope='module')
def model_file(tmp_path_factory, corpus):
  """Of German, Greek and Thai alone: much of Japanese is left to the bytes."""
  file = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  vocabulary.train_vocabulary(
    vocabulary.sample_text(corpus, dict.fromkeys(('de', 'el', 'th'), 50_000)), file, size=SIZE
  )
  return file


@pytest.fixture(scope='module')
def processor(model_file):
  return vocabulary.load_vocabulary(model_file)


@pytest.fixture(scope='module')
def without_bytes(tmp_path_factory):
  """A vocabulary as the released one is: what it lacks is [UNK]."""
  prefix = tmp_path_factory.mktemp('unknown') / 'small'
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['ein Haus und ein Garten', 'und eine Tür'] * 20),
    model_prefix=str(prefix),
    vocab_size=30,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  return vocabulary.load_vocabulary(f'{prefix}.model')


def plainly(processor, texts, *, words=True):
  """The statistics, piece by piece."""
  characters = covered = pieces = bytes_ = unknown = 0
  used = set()
  for text in texts:
    for piece in processor.encode(text, out_type=str):
      pieces += 1
      letters = piece.replace('▁', '')
      if re.fullmatch('<0x[0-9A-F]{2}>', piece):
        bytes_ += 1
        characters += not 0x80 <= int(piece[3:5], 16) < 0xC0
      elif processor.piece_to_id(piece) == processor.unk_id():
        unknown += 1
        characters += len(letters)
      else:
        used.add(piece)
        covered += len(letters)
        characters += len(letters)
  own = [
    number
    for number in range(processor.get_piece_size())
    if not (processor.is_byte(number) or processor.is_control(number) or processor.is_unknown(number))
  ]
  word_count = sum(len(text.split()) for text in texts)
  return {
    'documents': len(texts),
    'words': word_count,
    'characters': characters,
    'pieces': pieces,
    'coverage': covered / characters if characters else 0,
    'pieces_per_word': pieces / word_count if words else None,
    'pieces_per_character': pieces / characters if characters else 0,
    'byte_fallback': bytes_ / pieces if pieces else 0,
    'unknown': unknown / pieces if pieces else 0,
    'used': len(used) / len(own),
  }


def counted(processor, texts):
  counter = PieceCounter(processor)
  counter.add_texts(texts)
  return counter


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_every_number_is_that_of_a_plain_count(processor, corpus):
  texts = {language: list(corpus.texts(language, 'train')) for language in LANGUAGES}
  of_language, whole = report(processor, texts.items())
  assert list(of_language) == list(LANGUAGES)
  for language, statistics in of_language.items():
    assert vars(statistics) == pytest.approx(plainly(processor, texts[language], words=language in ('de', 'el')))
    # This vocabulary normalises nothing but white space.
    assert statistics.characters == sum(len(re.sub(r'\s', '', text)) for text in texts[language])
  assert vars(whole) == pytest.approx(plainly(processor, list(itertools.chain(*texts.values())), words=False))


def test_a_language_that_the_vocabulary_was_not_trained_on_falls_back_to_bytes(processor, corpus):
  texts = {language: list(corpus.texts(language, 'train')) for language in LANGUAGES}
  of_language, _ = report(processor, texts.items())
  assert of_language['ja'].coverage < 0.5 < 0.99 < of_language['el'].coverage
  assert of_language['ja'].byte_fallback > 0.5 > 0.01 > of_language['el'].byte_fallback
  assert of_language['ja'].unknown == 0


def test_without_bytes_what_is_missing_is_unknown(without_bytes):
  texts = ['ein Haus am 北京市 und ein ☃', 'Garten']
  statistics = counted(without_bytes, texts).statistics()
  assert vars(statistics) == pytest.approx(plainly(without_bytes, texts))
  assert statistics.characters == len('einHausam北京市undein☃Garten')
  assert statistics.unknown > 0
  assert statistics.byte_fallback == 0
  assert statistics.coverage < 1 - 4 / statistics.characters + 1e-9


@given(st.lists(st.text(st.characters(exclude_categories=('Cs', 'Cc', 'Zs', 'Zl', 'Zp')), max_size=40), max_size=5))
def test_no_character_is_lost_and_none_counted_twice(processor, texts):
  texts = [text.replace('▁', '') for text in texts]
  counter = counted(processor, texts)
  assert counter.statistics().characters == sum(map(len, texts))
  assert counter.counts.sum() == sum(len(processor.encode(text)) for text in texts)


def test_counters_add_up(without_bytes):
  texts = ['ein Haus', 'eine Tür 北京', '', 'und']
  together, parts = counted(without_bytes, texts), counted(without_bytes, texts[:2])
  parts.add(counted(without_bytes, texts[2:]))
  assert parts.statistics() == together.statistics()
  np.testing.assert_array_equal(parts.counts, together.counts)


def test_no_text_is_all_zero_and_a_language_without_is_left_out(processor):
  assert set(vars(counted(processor, []).statistics()).values()) == {0}
  assert report(processor, [('de', [])])[0] == {}


def test_scripts_without_spaces_are_known_by_the_code():
  assert [
    code for code in ('ja', 'zh', 'zh-TW', 'zh-yue', 'zh-classical', 'th', 'lo', 'km', 'my') if has_spaces(code)
  ] == []
  for code in ('de', 'ko', 'vi', 'bo-Latn', 'ja-Latn', 'zh-min-nan', 'tha'):
    assert has_spaces(code), code


# --- command line ----------------------------------------------------------------------------------------------------


def test_the_command_line_shows_and_writes_the_numbers(model_file, processor, corpus, tmp_path, capsys):
  output = tmp_path / 'report.json'
  arguments = ['report', f'--vocabulary={model_file}', f'--corpus={corpus.folder}', '--languages=el,ja']
  arguments += [f'--output={output}', '--characters=10000']
  assert vocabulary.main(arguments) == 0
  shown, written = capsys.readouterr().out, json.loads(output.read_text())
  texts = {language: list(corpus.sample(language, 'train', 10_000)) for language in ('el', 'ja')}
  of_language, whole = report(processor, texts.items())
  assert written['languages'] == {language: vars(statistics) for language, statistics in of_language.items()}
  assert written['all'] == vars(whole)
  assert (written['pieces'], written['own_pieces']) == (SIZE, SIZE - 315 - 256)
  for language, statistics in of_language.items():
    (row,) = (
      line for line in shown.splitlines() if line.startswith(f' {language} ') or line.startswith(f'{language} ')
    )
    assert f'{statistics.coverage:.2%}' in row
    assert f'{statistics.pieces_per_character:.3f}' in row


@pytest.mark.parametrize('is_named', [True, False])
def test_only_held_out_text_is_read_if_that_is_asked_for(model_file, corpus, tmp_path, is_named):
  output = tmp_path / 'report.json'
  source = f'--corpus={corpus.folder}' if is_named else '--dumps=sample'
  arguments = ['report', f'--vocabulary={model_file}', source, '--languages=de', f'--output={output}']
  assert vocabulary.main([*arguments, '--held_out=0.2']) == 0
  assert json.loads(output.read_text())['languages']['de']['documents'] == corpus.languages['de'].held_out > 0


def test_a_corpus_with_another_held_out_share_is_refused(model_file, corpus, capsys):
  arguments = [f'--vocabulary={model_file}', f'--corpus={corpus.folder}', '--held_out=0.1']
  assert vocabulary_report.main(arguments) == 2
  assert 'holds out a share of 0.2, not 0.1' in capsys.readouterr().err


def test_what_is_wrong_is_told_in_one_message(model_file, tmp_path, capsys):
  (tmp_path / 'de.txt').write_text('')
  for arguments, message in (
    (['--vocabulary=missing.model'], 'cannot be read'),
    ([f'--vocabulary={model_file}', '--languages=xx'], 'no dump of xx'),
    ([f'--vocabulary={model_file}', f'--text={tmp_path}'], 'no text to train on'),
  ):
    assert vocabulary_report.main(arguments) == 2
    assert message in capsys.readouterr().err
