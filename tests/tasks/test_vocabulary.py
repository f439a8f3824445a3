"""Vocabularies: the released layout at any size, nothing lost, clear words when it cannot be, and plain counts."""

import itertools
import json
import lzma
import re

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from small_corpora import sample_corpus

from rembert.convert.tokenizer_files import build_tokenizer
from rembert.errors import UsageError
from rembert.tokenizer import SPECIAL_PIECES, check_vocabulary, load_vocabulary
from tasks import vocabulary
from tasks.corpus.documents import find_parts, read_part
from tasks.vocabulary import PieceCounter, has_spaces, report

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
  return load_vocabulary(model_file)


def test_special_pieces_have_the_ids_of_the_released_vocabulary(model_file, processor):
  assert [processor.piece_to_id(piece) for piece in ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')] == [
    0,
    2,
    312,
    313,
    314,
  ]
  assert processor.get_piece_size() == 1500
  special = check_vocabulary(model_file, 1500)
  assert (special.pad, special.unknown, special.cls, special.sep, special.mask) == (0, 2, 312, 313, 314)


def test_text_never_becomes_a_special_or_unused_piece(processor):
  ids = processor.encode('[MASK] [CLS] [SEP] [PAD] [UNK] [unused7] <0x41>')
  assert min(ids) > 314


@given(st.text(st.characters(exclude_categories=('Cs', 'Cc', 'Zs', 'Zl', 'Zp')), max_size=60))
def test_every_text_comes_back_character_by_character(processor, text):
  # '▁' stands for a space inside SentencePiece, so it alone cannot be told from one.
  text = text.replace('\N{LOWER ONE EIGHTH BLOCK}', '')
  ids = processor.encode(text)
  assert processor.decode(ids) == text
  assert 2 not in ids


def test_all_white_space_is_one_space(processor):
  assert processor.encode('eins\n\tzwei\u00a0\u3000drei') == processor.encode('eins zwei drei')


def test_text_too_small_for_the_vocabulary_is_told_with_the_size_that_it_supports(tmp_path):
  file, texts = tmp_path / 'v.model', ['ein kleiner Text', 'noch einer'] * 20
  with pytest.raises(UsageError, match='supports a vocabulary of') as caught:
    vocabulary.train_vocabulary(texts, file, size=250_300)
  assert 'not 250,300' in caught.value.what
  assert not list(tmp_path.iterdir())
  most = caught.value.fix[0].value
  assert caught.value.fix[:2] == [f'--gin.RemBertConfig.vocab_size={most}', f'or of this command: --size={most}']
  with pytest.raises(UsageError, match=f'{most:,} pieces at most, not {most + 1:,}'):
    vocabulary.train_vocabulary(texts, file, size=most + 1)
  vocabulary.train_vocabulary(texts, file, size=most)
  check_vocabulary(file, most)


def test_a_vocabulary_too_small_for_the_characters_is_told_with_the_size_that_holds_them(tmp_path):
  file, texts = tmp_path / 'v.model', [''.join(map(chr, range(0x4E00, 0x4E00 + 100)))] * 3
  with pytest.raises(UsageError, match='cannot hold the characters of the text: that takes 672') as caught:
    vocabulary.train_vocabulary(texts, file, size=600)
  assert caught.value.fix[0] == '--gin.RemBertConfig.vocab_size=672'
  assert '--size=672' in caught.value.fix[1]


def test_no_text_is_no_vocabulary(tmp_path):
  with pytest.raises(UsageError, match='no text to train'):
    vocabulary.train_vocabulary([], tmp_path / 'v.model', size=600)


def test_a_vocabulary_too_small_for_the_special_pieces_is_refused(tmp_path):
  with pytest.raises(UsageError, match='do not hold the special ids'):
    vocabulary.train_vocabulary(['text'], tmp_path / 'v.model', size=500)


def test_budgets_follow_the_rates_and_end_with_the_text():
  budgets = vocabulary.text_budgets({'a': 100, 'b': 10_000}, {'a': 0.25, 'b': 0.75}, 1000)
  assert budgets == {'a': 100, 'b': 750}


def test_the_command_line_trains_one(tmp_path, capsys):
  file = tmp_path / 'v.model'
  assert vocabulary.main(['--languages=sw', '--size=900', f'--output={file}']) == 0
  assert check_vocabulary(file, 900)
  said = capsys.readouterr().out
  for words in (
    'making the corpus',
    'sampling text',
    'of 50,000,000 that were asked for: 1 have no more',
    '900 pieces',
  ):
    assert words in said
  assert vocabulary.main(['--languages=xx', '--size=900', f'--output={tmp_path}/other.model']) == 2
  assert 'xx' in capsys.readouterr().err
  content = file.read_bytes()
  file.write_text('of somebody else')
  command = ['--languages=sw', '--size=900', f'--output={file}']
  assert vocabulary.main(command) == 2
  assert '--overwrite replaces it' in capsys.readouterr().err
  assert file.read_text() == 'of somebody else'
  assert vocabulary.main([*command, '--overwrite']) == 0
  assert file.read_bytes() == content


def test_the_command_line_trains_one_on_text_files(tmp_path, capsys):
  text, file = tmp_path / 'text', tmp_path / 'v.model'
  text.mkdir()
  corpus = sample_corpus(('el', 'sw'))
  for language in corpus.languages:
    (text / f'{language}.txt.xz').write_bytes(lzma.compress('\n\n'.join(corpus.texts(language, 'train')).encode()))
  command = [f'--text={text}', '--size=1000', '--characters=20000', f'--output={file}']
  assert vocabulary.main(command) == 0
  assert 'of 2 language(s)\n' in capsys.readouterr().out
  assert check_vocabulary(file, 1000)


def test_what_cannot_end_well_is_told_before_anything_is_read(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr('tasks.corpus.__main__.parts_of', lambda *_: pytest.fail('the corpus was opened'))
  assert vocabulary.main(['--size=500', f'--output={tmp_path / "v.model"}']) == 2
  assert 'at least 572' in capsys.readouterr().err
  (tmp_path / 'file').write_text('')
  assert vocabulary.main(['--size=900', f'--output={tmp_path / "file" / "v.model"}']) != 0
  assert 'the folder of the file cannot be written to' in capsys.readouterr().err
  assert [path.name for path in tmp_path.iterdir()] == ['file']


def test_the_command_line_reads_a_corpus_and_trains_on_what_is_not_held_out(tmp_path, capsys, monkeypatch):
  corpus, read = sample_corpus(('el', 'sw')), []
  monkeypatch.setattr(vocabulary, 'train_vocabulary', lambda texts, path, **options: read.extend(texts))
  command = [f'--corpus={corpus.folder}', '--size=1000', f'--output={tmp_path / "v.model"}']
  assert vocabulary.main([*command, '--languages=sw']) == 0
  assert read == [line for text in corpus.texts('sw', 'train') for line in text.split('\n')]
  assert 'making the corpus' not in capsys.readouterr().out
  assert vocabulary.main([*command, '--languages=xh']) == 2
  assert 'no text in xh' in capsys.readouterr().err


def test_a_sample_has_a_budget_for_each_language_and_says_how_far_it_is():
  corpus, said = sample_corpus(('el', 'sw')), []
  budgets = {'el': 3000, 'sw': 1000}
  lines = list(vocabulary.sample_text(corpus, budgets, lambda fraction, language: said.append((fraction, language))))
  assert lines == [
    line
    for language, budget in budgets.items()
    for text in corpus.sample(language, 'train', budget)
    for line in text.split('\n')
  ]
  assert [fraction for fraction, _ in said] == sorted(fraction for fraction, _ in said)
  assert said[-1] == (1.0, 'sw')
  assert max(fraction for fraction, language in said if language == 'el') == 0.75


# --- as large as the released one ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_vocabulary_of_the_released_size_is_trained_on_real_text(shared_data, tmp_path, capsys):
  # Three minutes and 1.8 GB on two cores that have nothing else to do.
  text, file, size = shared_data / 'text', tmp_path / 'v.model', 250_300
  assert vocabulary.main([f'--text={text}', f'--size={size}', f'--output={file}']) == 0
  special = check_vocabulary(file, size)
  assert (special.pad, special.unknown, special.cls, special.sep, special.mask) == (0, 2, 312, 313, 314)
  processor = load_vocabulary(file)
  pieces = [processor.id_to_piece(piece) for piece in range(size)]
  assert len(set(pieces)) == size
  assert [piece for piece in range(size) if processor.is_byte(piece)] == list(range(315, 571))
  reserved = [piece for piece in range(315) if pieces[piece].startswith('[unused')]
  assert len(reserved) == 315 - len(SPECIAL_PIECES)
  assert processor.decode(processor.encode('Donaudampfschiff 𓀀𓀁 北京市')) == 'Donaudampfschiff 𓀀𓀁 北京市'

  capsys.readouterr()
  report = tmp_path / 'report.json'
  arguments = [f'--vocabulary={file}', f'--text={text}', '--characters=20000', f'--output={report}']
  assert vocabulary.main(['report', *arguments]) == 0
  content = json.loads(report.read_text())
  languages = content['languages']
  assert len(languages) == len(list(text.glob('*.txt.xz')))
  assert ' zh-TW ' in capsys.readouterr().out
  assert content['all']['coverage'] > 0.998
  assert content['all']['unknown'] == 0
  del languages['si']  # seven documents: too few for pieces of its own
  for language, statistics in languages.items():
    assert statistics['coverage'] > 0.97, language
    assert statistics['pieces_per_word'] is None or 1 <= statistics['pieces_per_word'] < 3.2, language

  # The tokenizer files of Hugging Face cut as it does.
  tokenizer = build_tokenizer(file.read_bytes())
  assert tokenizer.get_vocab_size() == size
  parts = find_parts('text', str(text), ('de', 'ja', 'sw', 'ta', 'th'))
  lines = [line for part in parts for line in _first_lines(part, 200)]
  cut = [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
  different = sum(ours != theirs for ours, theirs in zip(processor.encode(lines), cut, strict=True))
  assert len(lines) == 1000
  assert different <= 1  # two cuts whose scores agree to four digits: see rembert/convert/tokenizer_files.py


def _first_lines(part, count):
  return list(itertools.islice((line for document in read_part(part) for line in document.text.split('\n')), count))


# --- reports ----------------------------------------------------------------------------------------------------------


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
  return load_vocabulary(f'{prefix}.model')


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
  assert vocabulary.main(['report', *arguments]) == 2
  assert 'holds out a share of 0.2, not 0.1' in capsys.readouterr().err


def test_what_is_wrong_is_told_in_one_message(model_file, tmp_path, capsys):
  (tmp_path / 'de.txt').write_text('')
  for arguments, message in (
    (['--vocabulary=missing.model'], 'cannot be read'),
    ([f'--vocabulary={model_file}', '--languages=xx'], 'no dump of xx'),
    ([f'--vocabulary={model_file}', f'--text={tmp_path}'], 'no text to train on'),
  ):
    assert vocabulary.main(['report', *arguments]) == 2
    assert message in capsys.readouterr().err
