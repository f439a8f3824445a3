"""The table of XTREME's tasks: languages, labels and scores of each; predictions, their files, and scores."""

import json

import numpy as np
import pytest
from computed_rows import any_vocabulary, ask, computed_rows, pair, sentence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_vocabularies import vocabulary_file

from rembert.errors import UsageError
from rembert.model.heads import HEADS
from tasks.tables.kinds import IGNORED
from tasks.xtreme import XtremeConfig, leaderboard
from tasks.xtreme.benchmark import TASKS, get_task

XNLI, PAWSX, PANX, UDPOS = (TASKS[name] for name in ('xnli', 'pawsx', 'panx', 'udpos'))
SQUAD, XQUAD, MLQA, TYDIQA = (TASKS[name] for name in ('squad', 'xquad', 'mlqa', 'tydiqa'))
CONFIG = XtremeConfig()

# From XTREME's evaluate.py, which lists them in this order.
LANGUAGES = {
  'pawsx': 'de,en,es,fr,ja,ko,zh',
  'xnli': 'ar,bg,de,el,en,es,fr,hi,ru,sw,th,tr,ur,vi,zh',
  'panx': 'ar,he,vi,id,jv,ms,tl,eu,ml,ta,te,af,nl,en,de,el,bn,hi,mr,ur,fa,fr,it,pt,es,bg,ru,ja,ka,ko,th,sw,yo,my,zh,kk,'
  'tr,et,fi,hu',
  'udpos': 'af,ar,bg,de,el,en,es,et,eu,fa,fi,fr,he,hi,hu,id,it,ja,kk,ko,mr,nl,pt,ru,ta,te,th,tl,tr,ur,vi,yo,zh',
  'squad': 'en',
  'xquad': 'en,es,de,el,ru,tr,ar,vi,th,zh,hi',
  'mlqa': 'en,es,de,ar,hi,vi,zh',
  'tydiqa': 'en,ar,bn,fi,id,ko,ru,sw,te',
}
SCORES = {'classification': ('accuracy',), 'tagging': ('f1', 'precision', 'recall'), 'qa': ('f1', 'exact_match')}


@pytest.mark.parametrize('name', LANGUAGES)
def test_languages_head_and_scores_are_xtremes(name):
  task = get_task(name)
  assert task.name == name
  assert task.languages == tuple(LANGUAGES[name].split(','))
  assert task.head in HEADS
  assert task.scores == SCORES[task.head]
  assert task.suffix == ('json' if task.head == 'qa' else 'tsv')


def test_the_leaderboard_counts_the_languages_of_the_paper():
  assert leaderboard.NUM_LANGUAGES == {  # table 11
    **{'xnli': 15, 'pawsx': 7, 'udpos': 33, 'panx': 40, 'xquad': 11, 'mlqa': 7, 'tydiqa': 9},
    **{'tatoeba': 36, 'bucc2018': 4},
  }


def test_labels_are_those_of_xtreme_in_its_order():
  assert get_task('xnli').labels == ('contradiction', 'entailment', 'neutral')
  assert get_task('pawsx').labels == ('0', '1')
  assert get_task('panx').labels == ('B-LOC', 'B-ORG', 'B-PER', 'I-LOC', 'I-ORG', 'I-PER', 'O')
  assert get_task('udpos').labels == tuple(sorted(get_task('udpos').labels))
  assert len(set(get_task('udpos').labels)) == 17


@pytest.mark.parametrize(
  ('name', 'what'), [('tatoeba', 'tatoeba is retrieval: it has no training'), ('mnli', "unknown task 'mnli'")]
)
def test_retrieval_and_unknown_names_are_no_tasks(name, what):
  with pytest.raises(UsageError, match=what) as error:
    get_task(name)
  assert 'xnli, pawsx, panx, udpos, squad, xquad, mlqa, tydiqa' in error.value.fix[0]


def test_data_are_there_if_a_file_of_any_language_is(xtreme_samples):
  assert XNLI.has_data(xtreme_samples, 'test')
  assert not XNLI.has_data(xtreme_samples, 'train', ('de', 'zh'))


@pytest.mark.parametrize(
  ('task', 'split', 'language', 'what'),
  [
    (SQUAD, 'test', 'en', "SQuAD's test set is not public"),
    (XQUAD, 'train', 'en', 'XQuAD has no training set'),
    (XQUAD, 'dev', 'en', 'XQuAD has no development set'),
    (MLQA, 'train', 'en', 'MLQA has no training set'),
    (TYDIQA, 'dev', 'en', 'TyDiQA has no development set'),
    (MLQA, 'test', 'fr', "mlqa is not in 'fr'"),
    (XQUAD, 'test', 'hi', 'a file of the data is missing'),
  ],
)
def test_a_missing_split_language_or_file_is_an_error_with_a_fix(xtreme_samples, task, split, language, what):
  with pytest.raises(UsageError, match=what) as error:
    task.examples(xtreme_samples, split, language, needs_labels=False)
  assert error.value.fix


# --- predictions, files of predictions, scores ------------------------------------------------------------------------


def targets(task, *labels):
  """Rows as `metric_fns` get them, with labels by name; None is unknown.

  Of tagging every word is one token, and a sentence without words has no row.
  """
  index = lambda label: IGNORED if label is None else task.labels.index(label)
  rows = []
  for number, label in enumerate(labels):
    row = {'example': np.int32(number), 'where': b'test-de.tsv:1'}
    if task.head == 'classification':
      rows.append(row | {'labels': np.array([index(label)], np.int32)})
    elif label:
      of_words = np.array([IGNORED, *map(index, label), IGNORED], np.int32)
      rows.append(row | {'labels': of_words, 'first_tokens': np.arange(1, len(label) + 1, dtype=np.int32)})
  return rows


def test_the_highest_logit_is_predicted():
  scores = [np.array([0, 2, 1], np.float32), np.array([-1, -3, -0.5], np.float32)]
  rows = targets(XNLI, None, None)
  predictions = XNLI.predict(rows, scores, CONFIG)
  assert predictions == {0: 'entailment', 1: 'neutral'}
  assert XNLI.file_text(predictions, rows, 2) == 'entailment\nneutral\n'
  with pytest.raises(ValueError, match='argument 2'):
    XNLI.predict(rows, scores[:1], CONFIG)
  labelled = targets(XNLI, 'entailment', 'contradiction')
  assert XNLI.score(labelled, predictions, 'de') == {'accuracy': 50.0}


def test_rows_of_one_sentence_are_scored_as_one():
  first, second = targets(UDPOS, ('VERB', 'NOUN'), ('NOUN', 'VERB'))
  second['example'] = first['example']
  scores = UDPOS.score([first, second], {0: ('VERB', 'NOUN', 'NOUN', 'VERB')}, 'de')
  assert scores == {'f1': 100.0, 'precision': 100.0, 'recall': 100.0}
  wrong = UDPOS.score([first, second], {0: ('VERB', 'NOUN', 'VERB', 'VERB')}, 'de')
  assert wrong['recall'] == pytest.approx(100 / 3)  # VERB, NOUN NOUN, VERB


@pytest.mark.parametrize(('task', 'labels'), [(PAWSX, ('0', None)), (PANX, (('O', None),))])
def test_there_is_no_score_without_labels(task, labels):
  with pytest.raises(UsageError, match='no score without gold labels') as error:
    task.score(targets(task, *labels), {0: ('O', 'O'), 1: '0'}, 'de')
  assert error.value.where == 'test-de.tsv:1'


def test_the_baseline_is_the_most_frequent_label_of_train():
  train = [pair('', '', label) for label in ('neutral', 'entailment', 'neutral', 'contradiction', 'contradiction')]
  # Of equally frequent ones it is the first in XTREME's order.
  assert XNLI.baseline(train, targets(XNLI, None, None)) == {0: 'contradiction', 1: 'contradiction'}
  assert XNLI.baseline(train[:3], targets(XNLI, None)) == {0: 'neutral'}
  tagged, rows = [sentence('a', 'b', 'c', tags=('B-LOC', 'O', 'O'))], targets(PANX, ('O', 'B-PER'), ())
  assert PANX.baseline(tagged, rows) == {0: ('O', 'O')}


def lines_as_evaluate_py_reads_them(text):
  """XTREME's reader of tags: a blank line ends a sentence, and so does the end of the file behind a tag."""
  found, current = [], []
  for line in text.splitlines():
    if line.strip():
      current.append(line.strip())
    else:
      found.append(tuple(current))
      current = []
  return found + ([tuple(current)] if current else [])


@given(st.lists(st.lists(st.sampled_from(PANX.labels), max_size=3).map(tuple), max_size=5))
def test_the_file_has_for_evaluate_py_what_was_predicted(predictions):
  by_example = {number: tags for number, tags in enumerate(predictions) if tags}
  assert lines_as_evaluate_py_reads_them(PANX.file_text(by_example, [], len(predictions))) == predictions


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(['a\tO', 'b\tB-LOC', '']), min_size=1).filter(any))
def test_sentences_are_those_that_evaluate_py_sees_in_the_gold_tags(write, read, lines):
  write('panx/test-de.tsv', ''.join(f'{line.split(chr(9))[0]}\n' for line in lines))
  gold = ''.join(f'{line.split(chr(9))[-1]}\n' for line in lines)
  write('labels/panx/test-de.tsv', gold)
  assert [found.label for found in read(PANX, 'test')] == lines_as_evaluate_py_reads_them(gold)


# --- questions --------------------------------------------------------------------------------------------------------


def rows_of_questions(questions):
  """One row of each question, as far as scores, files and baselines look at it."""
  return [
    {
      'example': np.int32(number),
      'id': question.features['id'].encode(),
      'context': question.features['context'].encode(),
      'answers': [text.encode() for text, _ in question.label or ()],
      'where': question.where.encode(),
    }
    for number, question in enumerate(questions)
  ]


@pytest.mark.parametrize(
  ('task', 'split', 'language'),
  [(SQUAD, 'train', 'en'), (XQUAD, 'test', 'zh'), (MLQA, 'test', 'zh'), (TYDIQA, 'test', 'ko')],
)
def test_perfect_logits_give_the_gold_answers(xtreme_samples, task, split, language):
  questions = task.examples(xtreme_samples, split, language, needs_labels=True)
  vocabulary = any_vocabulary(vocabulary_file('rembert'))
  rows = [row.example for row in computed_rows(task, questions, vocabulary, max_length=384)]
  scores = [np.zeros((len(row['input_ids']), 2), np.float32) for row in rows]
  for row, logits in zip(rows, scores, strict=True):
    logits[row['labels'], [0, 1]] = 1
  answers = task.predict(rows, scores, XtremeConfig(max_answer_length=100))
  gold = {number: question.label[0].text for number, question in enumerate(questions)}
  # Inside a token no answer can end: the vocabulary may have "2006," or "年的" as one.
  for number, text in gold.items():
    assert text in answers[number]
    assert len(answers[number]) <= len(text) + 2
  assert task.score(rows, gold, language) == {'f1': 100, 'exact_match': 100}


def test_predictions_are_written_as_ids_and_answers(xtreme_samples):
  questions = XQUAD.examples(xtreme_samples, 'test', 'zh', needs_labels=False)
  answers = ['1936年', '', 'x "y"', '艾达·索恩']
  text = XQUAD.file_text(dict(enumerate(answers)), rows_of_questions(questions), 4)
  assert json.loads(text) == dict(zip(['7x01', '7x02', '7x03', '7x04'], answers, strict=True))
  assert '艾达·索恩' in text
  assert text.endswith('}\n')
  repeated = rows_of_questions(TYDIQA.examples(xtreme_samples, 'train', 'en', needs_labels=True))
  with pytest.raises(UsageError, match='same id'):
    TYDIQA.file_text(dict.fromkeys(range(len(repeated)), 'x'), repeated, len(repeated))


def test_each_language_of_mlqa_has_its_own_articles(xtreme_samples):
  questions = MLQA.examples(xtreme_samples, 'test', 'de', needs_labels=True)
  predictions = {number: f'die {question.label[0][0]}' for number, question in enumerate(questions)}
  assert MLQA.score(rows_of_questions(questions), predictions, 'de')['exact_match'] == 100
  assert MLQA.score(rows_of_questions(questions), predictions, 'en')['exact_match'] == 0


TRAIN = [ask('one two three four', 'two three', 'four'), ask('five six seven eight', 'five six seven eight')]


@pytest.mark.parametrize(
  ('context', 'answer'),
  [
    ('  The  tower of Halden was built.', 'The  tower of'),  # 3 words on average
    ('Turm', 'Turm'),
    ('', ''),
    ('萨恩岛自1936年起被列为自然保护区。', '萨恩岛自1936年起被列为自'),  # 14 characters
    ('หอคอยแห่งเมืองฮาลเดน', 'หอคอยแห่งเมือง'),
    ('은파산은 해발 812미터의 산이다.', '은파산은 해발 812미터의'),
  ],
)
def test_the_baseline_answers_with_the_beginning_of_the_context(context, answer):
  assert SQUAD.baseline(TRAIN, rows_of_questions([ask(context)])) == {0: answer}
