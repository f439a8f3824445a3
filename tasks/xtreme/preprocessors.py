"""Examples of XTREME to rows of ids, in tf.data and TF Text alone.

Rows have the features of any fine-tuning task (`tasks.rows`) and keep the other features of their example. Work is done
on batches of examples: an operation on one is mostly overhead.

A preprocessor takes its vocabulary, a `RembertVocabulary`, from the output feature `input_ids`, and the length of a row
from `sequence_length['input_ids']`.
"""

from tasks.tensorflow_import import tensorflow as tf

# isort: split
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import seqio
import tensorflow_text as tf_text

from rembert.errors import UsageError
from tasks.rows import batches
from tasks.tables.kinds import IGNORED

_EXAMPLES_AT_ONCE = 256
_QUESTIONS_AT_ONCE = 128
# White space of Python's `str.strip`: RE2's \s is ASCII's.
_SPACES = '[' + ''.join(character for character in map(chr, range(0x3001)) if character.isspace()) + ']*'

Features = dict[str, tf.Tensor | tf.RaggedTensor]
ToRows = Callable[[Features], Features]


def _on_batches(examples_at_once: int = _EXAMPLES_AT_ONCE) -> Callable[[Callable[..., ToRows]], Callable]:
  """Makes a preprocessor of a function of vocabulary, row length and options to one of a batch of examples to its rows.

  A vocabulary keeps the latter, so that it is traced once for the splits of all languages: that takes half a second,
  the rows of a small split less.
  """

  def decorated(make: Callable[..., ToRows]) -> Callable[..., tf.data.Dataset]:
    def preprocessor(
      dataset: tf.data.Dataset,
      sequence_length: Mapping[str, int],
      output_features: Mapping[str, seqio.Feature],
      **options: Any,
    ) -> tf.data.Dataset:
      vocabulary, length = output_features['input_ids'].vocabulary, sequence_length['input_ids']
      key = make.__name__, length, *options.items()
      if key not in vocabulary.functions:
        # Without AutoGraph: all is in TensorFlow's operations already.
        vocabulary.functions[key] = tf.function(make(vocabulary, length, **options), autograph=False)
      to_rows = vocabulary.functions[key]
      return batches(dataset, examples_at_once).map(to_rows, num_parallel_calls=tf.data.AUTOTUNE).unbatch()

    preprocessor.__name__, preprocessor.__doc__ = make.__name__, make.__doc__
    return preprocessor

  return decorated


def _room(length: int, special: int, least: int, content: str) -> int:
  """Positions of a row that are left next to `special` special tokens."""
  if length - special < least:
    what = f'a row of {length} tokens has no room for {content}'
    raise UsageError(what, where='train.sequence_length', fix=f'at least {special + least}')
  return length - special


# --- pairs of texts ---------------------------------------------------------------------------------------------------


@_on_batches()
def pair_rows(vocabulary: seqio.Vocabulary, length: int) -> ToRows:
  """`[CLS] first [SEP] second [SEP]`, of type 0 up to the first [SEP] and of type 1 behind it; `second` may be absent.

  A pair that is too long is truncated as by BERT's `_truncate_seq_pair`: the longer text loses its last token until
  both fit, and of two equally long ones the second.
  """

  def to_rows(pairs: Features) -> Features:
    texts = [pairs[name] for name in ('first', 'second') if name in pairs]
    ids, types = _rows_of_texts(vocabulary, length, len(texts))(texts)
    return {**pairs, 'input_ids': ids, 'token_type_ids': types}

  return to_rows


@_on_batches()
def choice_rows(vocabulary: seqio.Vocabulary, length: int, *, choices: int) -> ToRows:
  """Each of C = `choices` texts with what they continue, as `pair_rows` has it; [C, S], filled up with [PAD].

  An example has `first`, a string; `choices`, strings [C]; `labels`, int32 [1].

  Args:
    choices: their number in every example.
  """
  in_rows, pad = _rows_of_texts(vocabulary, length, 2), vocabulary.special.pad

  def to_rows(questions: Features) -> Features:
    count = tf.shape(questions['first'])[0]
    ids, types = in_rows([tf.repeat(questions['first'], choices), questions['choices'].flat_values])
    dense = lambda values, fill: tf.reshape(values.to_tensor(fill), [count, choices, -1])
    return {**questions, 'input_ids': dense(ids, pad), 'token_type_ids': dense(types, 0)}

  return to_rows


def _rows_of_texts(
  vocabulary: seqio.Vocabulary, length: int, texts: int
) -> Callable[[Sequence[tf.Tensor]], tuple[tf.RaggedTensor, tf.RaggedTensor]]:
  """Function of one or two batches of strings to the ids and types of their rows."""
  content = 'a pair of texts' if texts == 2 else 'a text'
  trimmer = tf_text.RoundRobinTrimmer(_room(length, texts + 1, texts, content))

  def in_rows(parts: Sequence[tf.Tensor]) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    tokens = [vocabulary.tf_tokenizer.tokenize(part) for part in parts]
    return tf_text.combine_segments(trimmer.trim(tokens), vocabulary.special.cls, vocabulary.special.sep)

  return in_rows


# --- words with tags --------------------------------------------------------------------------------------------------


@_on_batches()
def word_rows(vocabulary: seqio.Vocabulary, length: int) -> ToRows:
  """`[CLS] words [SEP]`: a word's tag is the label of its first token, all other labels are `IGNORED`.

  Words are tokenized one by one, as XTREME does it. A word that is white space or has no tokens becomes [UNK]. As many
  words as fit make a row, and the rest of the sentence the next, without overlap; XTREME's preprocessing splits at the
  same places. Only a word that is longer than a row is truncated. A sentence without words has no row.

  An example has `words`, strings [W], and `tags`, int32 [W].

  Returns:
    Rows with `first_tokens`, int32 [W]: the position of each word's first token. `words` are those of the row.
  """
  room = _room(length, 2, 1, 'a word')

  def to_rows(sentences: Features) -> Features:
    words, tags = sentences['words'], sentences['tags'].flat_values
    tokens = _word_tokens(words.flat_values, vocabulary)[:, :room]
    lengths = tokens.row_lengths()
    begins = tf.cumsum(lengths, exclusive=True)
    first_words = _first_words(begins, begins + lengths, words, room)
    by_row = lambda values: tf.RaggedTensor.from_row_starts(values, first_words, validate=False)
    ids = by_row(tokens).merge_dims(1, 2)
    labels = tf.fill([tf.reduce_sum(lengths)], IGNORED)
    labels = ids.with_values(tf.tensor_scatter_nd_update(labels, begins[:, None], tags))
    edge = tf.fill([ids.nrows(), 1], IGNORED)
    input_ids, types = tf_text.combine_segments([ids], vocabulary.special.cls, vocabulary.special.sep)
    sentence_of_row = tf.gather(words.value_rowids(), first_words)
    first_tokens = by_row(begins)
    others = {name: values for name, values in sentences.items() if name not in ('words', 'tags')}
    return {
      **{name: tf.gather(values, sentence_of_row) for name, values in others.items()},
      'words': by_row(words.flat_values),
      'first_tokens': tf.cast(first_tokens - tf.gather(begins, first_words)[:, None] + 1, tf.int32),
      'input_ids': input_ids,
      'token_type_ids': types,
      'labels': tf.concat([edge, labels, edge], axis=1),
    }

  return to_rows


def _word_tokens(words: tf.Tensor, vocabulary: seqio.Vocabulary) -> tf.RaggedTensor:
  """Ids of each word, at least one."""
  texts = tf.where(tf.strings.regex_full_match(words, _SPACES), '', words)
  tokens = vocabulary.tf_tokenizer.tokenize(texts)
  is_unknown = tf.cast(tokens.row_lengths() == 0, tf.int64)
  unknown = tf.fill([tf.reduce_sum(is_unknown)], vocabulary.special.unknown)
  return tf.concat([tokens, tf.RaggedTensor.from_row_lengths(unknown, is_unknown, validate=False)], axis=1)


def _first_words(begins: tf.Tensor, ends: tf.Tensor, words: tf.RaggedTensor, room: int) -> tf.Tensor:
  """Index of the word that each row begins with, int64 [rows]; words count on through the sentences.

  `begins` and `ends` are indices of each word's first token, and behind its last, among all tokens, int64; `room` is
  the number of tokens that fit into a row.
  """
  behind_sentence = tf.gather(words.row_limits(), words.value_rowids())
  # If a row began with the word, the next would begin with this one.
  following = tf.minimum(tf.searchsorted(ends, begins + room, side='right', out_type=tf.int64), behind_sentence)

  def add_following(newest: tf.Tensor, found: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    next_rows = tf.gather(following, newest)
    next_rows = tf.boolean_mask(next_rows, next_rows < tf.gather(behind_sentence, newest))
    return next_rows, tf.concat([found, next_rows], axis=0)

  found = tf.boolean_mask(words.row_starts(), words.row_lengths() > 0)
  _, found = tf.while_loop(
    lambda newest, _: tf.size(newest) > 0,
    add_following,
    (found, found),
    shape_invariants=(tf.TensorShape([None]), tf.TensorShape([None])),
  )
  return tf.sort(found)


# --- questions on contexts --------------------------------------------------------------------------------------------


@_on_batches(_QUESTIONS_AT_ONCE)
def question_rows(vocabulary: seqio.Vocabulary, length: int, *, doc_stride: int, max_query_length: int) -> ToRows:
  """Windows `[CLS] question [SEP] part of the context [SEP]`, as many as a long context takes.

  As BERT's `run_squad.py`: windows of as many tokens as fit, each begun `doc_stride` tokens after the one before (or
  where that one ends, if that is sooner), until one reaches the end. Unlike there, a context is tokenized as a whole
  and not word by word: SentencePiece gives the place of each token in the text, and scripts without spaces have no
  words. Labels are the first and the last token of the first answer, (0, 0) in windows that do not show all of it, and
  `IGNORED` if the question has no answers. A context without tokens makes one empty window.

  An example has `question` and `context`, strings; `answers`, strings [A], and `starts`, int32 [A], the character of
  the context that each answer begins with; `where`, the string that names the question in an error.

  Args:
    doc_stride: see above.
    max_query_length: tokens that are kept of a question.

  Returns:
    Rows that show W tokens of the context each, with
      offset: int32, position in the row of the first of them.
      first: int32, index of that token among those of the context.
      begin: int32 [W], the character of the context that an answer that begins with the token begins with.
      end: int32 [W], the character behind an answer that ends with the token. A character that is several tokens
        belongs to each of them as a whole.
      has_most_context: bool [W], whether no other window shows more on both sides of the token. One window has each.
    If a question leaves no position for its context, reading ends with an error that names the question.
  """

  def to_rows(questions: Features) -> Features:
    asked = vocabulary.tf_tokenizer.tokenize(questions['question'])[:, :max_query_length]
    room = length - 3 - tf.cast(asked.row_lengths(), tf.int32)  # [CLS], [SEP], [SEP]
    is_full = tf.boolean_mask(questions['where'], room < 1)
    tf.debugging.Assert(tf.size(is_full) == 0, [f'rows of {length} tokens have no room next to the question', is_full])
    # Questions on one context follow one another: it is tokenized once.
    contexts, context = tf.unique(questions['context'])
    tokens = context_tokens(contexts, vocabulary)
    lengths, base = tf.gather(tokens.lengths, context), tf.gather(tokens.base, context)
    answer_first, answer_last = _answer_tokens(questions, tokens, context, vocabulary.space_id)

    # --- windows of all questions, one after the other -------------------------
    step = tf.minimum(doc_stride, room)
    windows = 1 + (tf.maximum(lengths - room, 0) + step - 1) // step
    question = tf.repeat(tf.range(tf.size(windows)), windows)
    of_question = lambda values: tf.gather(values, question)
    number = tf.range(tf.size(question)) - of_question(tf.cumsum(windows, exclusive=True))
    first = number * of_question(step)
    limit = tf.minimum(first + of_question(room), of_question(lengths))
    offset = of_question(length - 1 - room)
    positions = tf.ragged.range(first, limit, row_splits_dtype=tf.int64)
    places = (positions + of_question(base)[:, None]).flat_values
    shown = lambda values: positions.with_values(tf.gather(values, places))
    ids, types = tf_text.combine_segments(
      [of_question(asked), shown(tokens.ids)], vocabulary.special.cls, vocabulary.special.sep
    )

    # --- the answer ------------------------------------------------------------
    span = tf.stack([of_question(answer_first), of_question(answer_last)], axis=1)
    is_shown = (first <= span[:, 0]) & (span[:, 1] < limit)
    labels = tf.where(is_shown[:, None], span + (offset - first)[:, None], 0)
    has_answer = of_question(questions['answers'].row_lengths() > 0)
    return {
      **{name: of_question(values) for name, values in questions.items()},
      'input_ids': ids,
      'token_type_ids': types,
      'labels': tf.where(has_answer[:, None], labels, IGNORED),
      'offset': offset,
      'first': first,
      'begin': shown(tokens.begins),
      'end': shown(tokens.ends),
      'has_most_context': _has_most_context(positions, first, limit, question, lengths),
    }

  return to_rows


class ContextTokens(NamedTuple):
  """Tokens of C contexts, one context after the other; all int32."""

  ids: tf.Tensor  # [T]
  begins: tf.Tensor  # [T], the character that a token begins with
  ends: tf.Tensor  # [T], the character behind a token
  # [2, T], begins and ends as the tokenizer has them, counted on through the contexts and never falling: tokens without
  # a character of their own (all but the last of a character's bytes) end where they begin.
  edges: tf.Tensor
  lengths: tf.Tensor  # [C], tokens of each context
  base: tf.Tensor  # [C], index of its first token
  character_base: tf.Tensor  # [C], where it begins in `edges`


def context_tokens(contexts: tf.Tensor, vocabulary: seqio.Vocabulary) -> ContextTokens:
  """Tokens of contexts, strings [C], and their places in characters of the text as it was before normalisation."""
  ids, *edges = vocabulary.tokenize_with_offsets(contexts)
  context = tf.cast(ids.value_rowids(), tf.int32)
  # Bytes to characters: a character begins with every byte that does not continue one.
  text = tf.io.decode_raw(tf.strings.reduce_join(contexts), tf.uint8)
  is_first_byte = tf.bitwise.bitwise_and(text, 0b1100_0000) != 0b1000_0000
  characters = tf.concat([[0], tf.cumsum(tf.cast(is_first_byte, tf.int32))], axis=0)
  sizes = tf.strings.length(contexts)
  byte_base = tf.cumsum(sizes, exclusive=True)
  character_base = tf.gather(characters, byte_base)
  limits = tf.gather(characters, byte_base + sizes) - character_base
  edges = tf.stack([tf.gather(characters, edge.flat_values + tf.gather(byte_base, context)) for edge in edges])
  begins, ends = tf.unstack(edges - tf.gather(character_base, context))
  lengths = tf.cast(ids.row_lengths(), tf.int32)
  gap = tf.range(tf.size(contexts))  # the end of one context is not the beginning of the next
  return ContextTokens(
    ids=ids.flat_values,
    begins=begins,
    ends=tf.minimum(tf.maximum(ends, begins + 1), tf.gather(limits, context)),
    edges=edges + context,
    lengths=lengths,
    base=tf.cumsum(lengths, exclusive=True),
    character_base=character_base + gap,
  )


def _answer_tokens(
  questions: Features, tokens: ContextTokens, context: tf.Tensor, space_id: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """First and last of the tokens that stand, wholly or in part, for the first answer of each question; int32 [Q] each.

  White space around an answer does not belong to it. Tokens without a character of their own belong to the one that
  they precede: the answer 🌊, tokenized to four bytes, is all four. The lone `▁` that is put before a text belongs to
  none. Both are −1 if the context has no tokens.
  """
  text = tf.strings.reduce_join(questions['answers'][:, :1], axis=1)
  without_left = tf.strings.regex_replace(text, '^' + _SPACES, '')
  size = lambda texts: tf.strings.length(texts, unit='UTF8_CHAR')
  begin = tf.reduce_sum(questions['starts'][:, :1], axis=1) + size(text) - size(without_left)
  end = begin + size(tf.strings.regex_replace(without_left, _SPACES + '$', ''))
  base, lengths = tf.gather(tokens.base, context), tf.gather(tokens.lengths, context)
  begin, end = (place + tf.gather(tokens.character_base, context) for place in (begin, end))
  begins, ends = tf.unstack(tokens.edges)
  first = tf.searchsorted(ends, begin, side='right') - base
  first_without_character = tf.searchsorted(begins, begin, side='left') - base
  starts_with_space = tf.gather(tf.concat([tokens.ids, [IGNORED]], axis=0), base) == space_id
  first = tf.minimum(first, tf.maximum(first_without_character, tf.cast(starts_with_space, tf.int32)))
  last = tf.searchsorted(ends, end, side='left') - base
  # What was normalised away at the end has no tokens.
  return tf.minimum(first, lengths - 1), tf.minimum(last, lengths - 1)


def _has_most_context(
  positions: tf.RaggedTensor, first: tf.Tensor, limit: tf.Tensor, question: tf.Tensor, lengths: tf.Tensor
) -> tf.RaggedTensor:
  """Whether a window is the one that shows most around each of its tokens, bool [rows, (W)].

  BERT's measure: tokens to the nearer edge of the window, and a hundredth of the window's length, so that the longer
  one wins where two are equal; then the earlier one. `positions` are the indices in its context of the tokens that a
  window shows, from `first` to before `limit`; `lengths` counts the tokens of each question's context.
  """
  row = tf.cast(positions.value_rowids(), tf.int32)
  position = positions.flat_values
  nearer_edge = tf.minimum(position - tf.gather(first, row), tf.gather(limit, row) - 1 - position)
  score = tf.cast(nearer_edge, tf.float64) + 0.01 * tf.cast(tf.gather(limit - first, row), tf.float64)
  token = position + tf.gather(tf.gather(tf.cumsum(lengths, exclusive=True), question), row)
  count = tf.reduce_sum(lengths)
  is_best = score == tf.gather(tf.math.unsorted_segment_max(score, token, count), token)
  earliest = tf.math.unsorted_segment_min(tf.where(is_best, row, row.dtype.max), token, count)
  return positions.with_values(tf.gather(earliest, token) == row)
