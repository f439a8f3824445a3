"""Vocabularies: the released layout at any size, nothing lost, and clear words when it cannot be."""

import itertools
import json
import lzma
import re

import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st
from small_corpora import sample_corpus

from rembert.convert.tokenizer_files import build_tokenizer
from rembert.errors import UsageError
from tasks import vocabulary
from tasks.corpus.sources import find_parts, read_part


@pytest.fixture(scope='module')
def model_file(tmp_path_factory):
  file = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  corpus = sample_corpus(('de', 'el', 'th'))
  vocabulary.train_vocabulary(vocabulary.sample_text(corpus, dict.fromkeys(corpus.languages, 50_000)), file, size=1500)
  return file


@pytest.fixture(scope='module')
def processor(model_file):
  return sentencepiece.SentencePieceProcessor(model_file=str(model_file))


def test_special_pieces_have_the_ids_of_the_released_vocabulary(model_file, processor):
  assert [processor.piece_to_id(piece) for piece in ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')] == [
    0,
    2,
    312,
    313,
    314,
  ]
  assert processor.get_piece_size() == 1500
  special = vocabulary.check_vocabulary(model_file, 1500)
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


def test_words_begin_where_the_text_has_a_space(model_file, processor):
  begins_V = vocabulary.begins_word(model_file, 1600)
  assert begins_V.shape == (1600,)
  text = 'Die Donaudampfschifffahrt, η θάλασσα 🌊🌊 และ (x)'
  words = []
  for piece in processor.encode(text):
    words = [*words, [piece]] if begins_V[piece] else [*words[:-1], [*words[-1], piece]]
  assert [processor.decode(word) for word in words] == text.split()
  assert max(len(word) for word in words) >= 8  # the waves are bytes


def test_special_and_unused_pieces_begin_words_and_bytes_do_not(model_file, processor):
  begins_V = vocabulary.begins_word(model_file, 1600)
  assert begins_V[:315].all()
  assert begins_V[1500:].all()
  is_byte = [processor.is_byte(piece) for piece in range(1500)]
  assert sum(is_byte) == 256
  assert not begins_V[:1500][is_byte].any()
  assert begins_V[processor.piece_to_id('▁')]


def test_text_too_small_for_the_vocabulary_is_told_with_the_size_that_it_supports(tmp_path):
  file, texts = tmp_path / 'v.model', ['ein kleiner Text', 'noch einer'] * 20
  with pytest.raises(UsageError, match='supports a vocabulary of') as caught:
    vocabulary.train_vocabulary(texts, file, size=250_300)
  assert 'not 250,300' in caught.value.what
  assert not list(tmp_path.iterdir())
  most = int(re.search(r'--gin.RemBertConfig.vocab_size=(\d+), or --size=\1', caught.value.fix[0])[1])
  with pytest.raises(UsageError, match=f'{most:,} pieces at most, not {most + 1:,}'):
    vocabulary.train_vocabulary(texts, file, size=most + 1)
  vocabulary.train_vocabulary(texts, file, size=most)
  vocabulary.check_vocabulary(file, most)


def test_a_vocabulary_too_small_for_the_characters_is_told_with_the_size_that_holds_them(tmp_path):
  file, texts = tmp_path / 'v.model', [''.join(map(chr, range(0x4E00, 0x4E00 + 100)))] * 3
  with pytest.raises(UsageError, match='cannot hold the characters of the text: that takes 672') as caught:
    vocabulary.train_vocabulary(texts, file, size=600)
  assert '--size=672' in caught.value.fix[0]


def test_no_text_is_no_vocabulary(tmp_path):
  with pytest.raises(UsageError, match='no text to train'):
    vocabulary.train_vocabulary([], tmp_path / 'v.model', size=600)


def test_a_vocabulary_too_small_for_the_special_pieces_is_refused(tmp_path):
  with pytest.raises(UsageError, match='do not hold the special ids'):
    vocabulary.train_vocabulary(['text'], tmp_path / 'v.model', size=500)


def test_files_that_are_no_rembert_vocabulary_are_refused(tmp_path, model_file):
  with pytest.raises(UsageError, match='cannot be read'):
    vocabulary.check_vocabulary(tmp_path / 'missing.model', 1500)
  (tmp_path / 'text.model').write_text('not a model')
  with pytest.raises(UsageError, match='not a SentencePiece model'):
    vocabulary.check_vocabulary(tmp_path / 'text.model', 1500)
  with pytest.raises(UsageError, match='1500 pieces, the model 1000'):
    vocabulary.check_vocabulary(model_file, 1000)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(['other special ids'] * 10),
    model_prefix=str(tmp_path / 'other'),
    vocab_size=40,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with pytest.raises(UsageError, match='other special ids'):
    vocabulary.check_vocabulary(tmp_path / 'other.model', 1500)


def test_budgets_follow_the_rates_and_end_with_the_text():
  budgets = vocabulary.text_budgets({'a': 100, 'b': 10_000}, {'a': 0.25, 'b': 0.75}, 1000)
  assert budgets == {'a': 100, 'b': 750}


def test_the_command_line_trains_one(tmp_path, capsys):
  file = tmp_path / 'v.model'
  assert vocabulary.main(['--languages=sw', '--size=900', f'--output={file}']) == 0
  assert vocabulary.check_vocabulary(file, 900)
  said = capsys.readouterr().out
  for words in (
    'making the corpus',
    'sampling text',
    'of 50,000,000 that were asked for: 1 have no more',
    '900 pieces',
  ):
    assert words in said
  assert vocabulary.main(['--languages=xx', '--size=900', f'--output={file}']) == 2
  assert 'xx' in capsys.readouterr().err


def test_the_command_line_trains_one_on_text_files(tmp_path, capsys):
  text, file = tmp_path / 'text', tmp_path / 'v.model'
  text.mkdir()
  corpus = sample_corpus(('el', 'sw'))
  for language in corpus.languages:
    (text / f'{language}.txt.xz').write_bytes(lzma.compress('\n\n'.join(corpus.texts(language, 'train')).encode()))
  command = [f'--text={text}', '--size=1000', '--characters=20000', f'--output={file}']
  assert vocabulary.main(command) == 0
  assert 'of 2 language(s)\n' in capsys.readouterr().out
  assert vocabulary.check_vocabulary(file, 1000)


def test_what_cannot_end_well_is_told_before_anything_is_read(tmp_path, capsys, monkeypatch):
  monkeypatch.setattr('tasks.corpus.__main__.parts_of', lambda *_: pytest.fail('the corpus was opened'))
  assert vocabulary.main(['--size=500', f'--output={tmp_path / "v.model"}']) == 2
  assert 'at least 572' in capsys.readouterr().err
  (tmp_path / 'file').write_text('')
  assert vocabulary.main(['--size=900', f'--output={tmp_path / "file" / "v.model"}']) != 0
  assert 'the vocabulary could not be written' in capsys.readouterr().err
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
  special = vocabulary.check_vocabulary(file, size)
  assert (special.pad, special.unknown, special.cls, special.sep, special.mask) == (0, 2, 312, 313, 314)
  processor = vocabulary.load_vocabulary(file)
  pieces = [processor.id_to_piece(piece) for piece in range(size)]
  assert len(set(pieces)) == size
  assert [piece for piece in range(size) if processor.is_byte(piece)] == list(range(315, 571))
  reserved = [piece for piece in range(315) if pieces[piece].startswith('[unused')]
  assert len(reserved) == 315 - len(vocabulary.SPECIAL_PIECES)
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
