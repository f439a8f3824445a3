"""Tokenizer files: transformers cuts text as SentencePiece does."""

import re

import pytest
import sentencepiece
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from small_corpora import sample_corpus

from rembert.convert.tokenizer_files import build_tokenizer, write_tokenizer
from rembert.tokenizer import TextEncoder, parse_model
from tasks.vocabulary import sample_text, train_vocabulary

LINES = 1000
_SENTENCE_END = re.compile(r'(?<=[.!?。।؟])|\n')


@pytest.fixture(scope='module')
def lines():
  """A thousand sentences of the twelve languages of the sample corpus, a line each."""
  corpus = sample_corpus()
  each = -(-LINES // len(corpus.languages))
  by_language = {}
  for language in corpus.languages:
    texts = sample_text(corpus, {language: 100_000})
    by_language[language] = [line.strip() for text in texts for line in _SENTENCE_END.split(text) if line.strip()][
      :each
    ]
  assert len(by_language) == 12
  assert min(map(len, by_language.values())) == each
  return [line for lines in by_language.values() for line in lines][:LINES]


@pytest.fixture(scope='module')
def vocabulary(lines, tmp_path_factory):
  file = tmp_path_factory.mktemp('vocabulary') / 'sentencepiece.model'
  # Trained on a part: the rest has characters without tokens.
  train_vocabulary(lines[::3], file, size=2500, character_coverage=0.99)
  return file


@pytest.fixture(scope='module')
def processor(vocabulary):
  return sentencepiece.SentencePieceProcessor(model_file=str(vocabulary))


@pytest.fixture(scope='module')
def ours(vocabulary):
  return build_tokenizer(vocabulary.read_bytes())


@pytest.fixture(scope='module')
def theirs(vocabulary, tmp_path_factory):
  transformers = pytest.importorskip('transformers')
  folder = tmp_path_factory.mktemp('exported')
  write_tokenizer(vocabulary, folder, longest=512)
  return transformers.AutoTokenizer.from_pretrained(folder)


def test_a_thousand_lines_in_twelve_languages_have_the_same_tokens(lines, processor, theirs):
  different = [line for line in lines if theirs(line)['input_ids'] != [312, *processor.encode(line), 313]]
  assert not different
  pieces = {piece for line in lines for piece in processor.encode(line, out_type=str)}
  assert any(piece.startswith('<0x') for piece in pieces), 'no byte was needed: the test is too easy'


def test_what_is_decoded_is_what_was_written(lines, processor, theirs):
  for line in lines[::7]:
    ids = processor.encode(line)
    assert theirs.decode(ids) == processor.decode(ids)


@settings(max_examples=300, deadline=None)
@given(
  st.text(
    st.one_of(
      st.sampled_from(' \t\n\u00a0\u3000\u2003\u200b\u0085\u0301`\'"'),
      st.characters(exclude_categories=('Cs',), exclude_characters='▁\0'),
    ),
    max_size=30,
  )
)
def test_any_text_has_the_same_tokens(processor, ours, text):
  # A special token's name in a text is that token here, as in transformers; to the library it is text.
  assume(not any(token.content in text for token in ours.get_added_tokens_decoder().values()))
  assert ours.encode(text, add_special_tokens=False).ids == processor.encode(text)


def test_pairs_and_masks_are_those_of_rembert(vocabulary, theirs):
  ours = TextEncoder(vocabulary)
  pair = theirs('eins zwei', 'drei')
  first, second = ours.encode('eins zwei'), ours.encode('drei')
  assert pair['input_ids'] == first + second[1:]
  assert pair['token_type_ids'] == [0] * len(first) + [1] * (len(second) - 1)
  for text in 'ein [MASK] hier', 'ein[MASK]hier', '[MASK]', 'ein  [MASK] [MASK].', 'ein [MASK]\thier [MASK] ':
    assert theirs(text)['input_ids'] == ours.encode(text), text
  assert (theirs.pad_token_id, theirs.unk_token_id, theirs.mask_token_id) == (0, 2, 314)
  assert (theirs.cls_token_id, theirs.sep_token_id, theirs.model_max_length) == (312, 313, 512)


def test_a_mask_takes_the_space_before_it_where_the_vocabulary_keeps_spaces(vocabulary):
  proto = parse_model(vocabulary.read_bytes())
  proto.normalizer_spec.remove_extra_whitespaces = False
  ours, processor = build_tokenizer(proto.SerializeToString()), sentencepiece.SentencePieceProcessor()
  processor.LoadFromSerializedProto(proto.SerializeToString())
  expected = [312, *processor.encode('ein'), 314, 313]
  assert processor.encode('ein ') != processor.encode('ein')
  assert ours.encode('ein [MASK]').ids == expected


def test_a_vocabulary_with_a_normaliser_of_its_own_keeps_it(lines, tmp_path):
  # As the released one: NFKC, and no bytes to fall back to.
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(lines[::3]),
    model_prefix=str(tmp_path / 'nfkc'),
    vocab_size=2000,
    character_coverage=0.99,
    normalization_rule_name='nmt_nfkc',
    pad_id=0,
    pad_piece='[PAD]',
    unk_id=2,
    unk_piece='[UNK]',
    bos_id=312,
    bos_piece='[CLS]',
    eos_id=313,
    eos_piece='[SEP]',
    control_symbols=[f'[unused{index}]' for index in range(310)] + ['[MASK]'],
    minloglevel=2,
  )
  content = (tmp_path / 'nfkc.model').read_bytes()
  processor, built = sentencepiece.SentencePieceProcessor(model_proto=content), build_tokenizer(content)
  extra = ['ﬁne Ⅳ ½ ｆｕｌｌ', 'x² … ①', 'a\u00a0b\tc']
  different = [
    line for line in lines + extra if built.encode(line, add_special_tokens=False).ids != processor.encode(line)
  ]
  assert not different
