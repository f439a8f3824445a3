"""Rows of anybody's fine-tuning task: what is read, what is refused, how it is scored."""

import json

import numpy as np
import pytest
import seqio
from t5.evaluation import metrics as t5_metrics

from rembert.data.finetune_batches import sample_examples
from rembert.errors import UsageError
from tasks import registration, rows
from tasks.tensorflow_import import tensorflow as tf

CLASSIFICATION = {'input_ids': [5, 6, 7], 'labels': [1], 'id': 'a'}


def make_task(*examples, name='rows_test.task', labels=2, features=('input_ids', 'labels'), **options):
  """A task over examples that are rows already; a list is of any length."""

  def dataset(split, shuffle_files, seed=None):
    del split, shuffle_files, seed
    signature = {
      key: tf.TensorSpec([None] if isinstance(value, list) else [], tf.string if key == 'id' else tf.int32)
      for key, value in examples[0].items()
    }
    return tf.data.Dataset.from_generator(lambda: iter(examples), output_signature=signature)

  vocabularies = {'input_ids': seqio.PassThroughVocabulary(100), 'labels': rows.LabelVocabulary(range(labels))}
  return registration.add_task(
    name,
    source=seqio.FunctionDataSource(dataset, ('train', 'validation', 'test')),
    preprocessors=[],
    output_features={
      each: seqio.Feature(vocabularies.get(each, seqio.PassThroughVocabulary(2)), add_eos=False, dtype=tf.int32)
      for each in features
    },
    **options,
  )


def read(task, head='classification', **options):
  return list(rows.stream_rows(task, 'test', head, **{'max_length': 8} | options))


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_row_has_ids_types_labels_and_its_example():
  (row,) = read(make_task(CLASSIFICATION))
  assert row.input_ids.tolist() == [5, 6, 7]
  assert row.token_type_ids.tolist() == [0, 0, 0]
  assert (row.labels.shape, int(row.labels)) == ((), 1)
  assert row.example['id'] == b'a'
  assert row.example['labels'].tolist() == [1]
  (row,) = read(make_task(CLASSIFICATION), keep_examples=False)
  assert (row.input_ids.tolist(), row.example) == ([5, 6, 7], {})


def test_types_and_labels_of_other_heads_are_kept():
  tagged = {'input_ids': [5, 6], 'labels': [-1, 1], 'token_type_ids': [0, 1]}
  (row,) = read(make_task(tagged, features=('input_ids', 'labels', 'token_type_ids')), 'tagging')
  assert (row.token_type_ids.tolist(), row.labels.tolist()) == ([0, 1], [-1, 1])
  (row,) = read(make_task({'input_ids': [5, 6], 'labels': [1, 1]}), 'qa')
  assert row.labels.tolist() == [1, 1]
  long = {'input_ids': list(range(20)), 'labels': list(range(20))}
  (row,) = read(make_task(long), 'tagging')
  assert row.input_ids.tolist() == row.labels.tolist() == list(range(8))  # trimmed together


def test_rows_come_in_their_order_over_many_batches(monkeypatch):
  monkeypatch.setattr(rows, '_ROWS_AT_ONCE', 4)
  examples = [{'input_ids': list(range(1, 2 + number % 5)), 'labels': [number % 2]} for number in range(19)]
  found = read(make_task(*examples))
  assert [row.input_ids.tolist() for row in found] == [example['input_ids'] for example in examples]


def test_the_same_few_examples_are_drawn_at_the_source():
  examples = [{'input_ids': [number + 1], 'labels': [0]} for number in range(30)]
  few = [int(row.input_ids[0]) - 1 for row in read(make_task(*examples), max_examples=7)]
  assert few == sample_examples(range(30), 7)
  assert len(few) == 7
  assert few == sorted(few)
  assert few != list(range(7)), 'files may be sorted: the first are not like the others'
  assert sample_examples(range(30), None) == sample_examples(range(30), 30) == range(30)


@pytest.mark.parametrize(
  ('example', 'head'),
  [
    ({'input_ids': [5, 6], 'labels': [0, 1]}, 'classification'),
    ({'input_ids': [5, 6], 'labels': [0]}, 'tagging'),
    ({'input_ids': [5, 6], 'labels': [0]}, 'qa'),
    ({'input_ids': [], 'labels': [0]}, 'classification'),
    ({'input_ids': [5, 6], 'labels': [0], 'token_type_ids': [0]}, 'classification'),
  ],
)
def test_labels_that_do_not_fit_are_one_error_that_names_the_task(example, head):
  with pytest.raises(UsageError, match='a sequence has') as error:
    read(make_task(example, features=tuple(example)), head)
  assert 'rows_test.task' in error.value.where


def test_a_split_without_rows_is_an_error():
  task = make_task(CLASSIFICATION).replace(preprocessors=[lambda dataset: dataset.take(0)])
  with pytest.raises(UsageError, match='the split is empty'):
    read(task)


def test_an_assertion_of_a_preprocessor_is_an_error_without_a_traceback():
  def check(dataset):
    def asserted(example):
      tf.debugging.Assert(False, ['no such colour'])
      return example

    return dataset.map(asserted)

  with pytest.raises(UsageError, match='no such colour'):
    read(make_task(CLASSIFICATION).replace(preprocessors=[check]))


# --- what a task must have --------------------------------------------------------------------------------------------


def test_what_is_missing_is_listed():
  assert rows.missing_parts(make_task(CLASSIFICATION), is_evaluated=False) == []
  assert rows.missing_parts(make_task(CLASSIFICATION, metric_fns=[t5_metrics.accuracy]), is_evaluated=True) == []
  missing = rows.missing_parts(make_task(CLASSIFICATION, features=('input_ids',)), is_evaluated=True)
  assert len(missing) == 2
  assert 'no output feature labels' in missing[0]
  assert 'no metric_fns' in missing[1]
  scalar = seqio.Feature(seqio.PassThroughVocabulary(2), add_eos=False, dtype=tf.int32, rank=0)
  task = make_task(CLASSIFICATION)
  task = task.replace(output_features={**task.output_features, 'labels': scalar})
  assert 'rank 1' in rows.missing_parts(task, is_evaluated=False)[0]


def test_labels_have_names_or_numbers():
  assert rows.label_names(make_task(CLASSIFICATION)) == (0, 1)
  task = make_task(CLASSIFICATION)
  named = {'labels': seqio.Feature(rows.LabelVocabulary(('no', 'yes')), add_eos=False, dtype=tf.int32)}
  numbered = {'labels': seqio.Feature(seqio.PassThroughVocabulary(3), add_eos=False, dtype=tf.int32)}
  assert rows.label_names(task.replace(output_features=task.output_features | named)) == ('no', 'yes')
  assert rows.label_names(task.replace(output_features=task.output_features | numbered)) == ('0', '1', '2')


def test_a_mixture_has_its_tasks_with_their_rates():
  names = [make_task(CLASSIFICATION, name=f'rows_test.{name}').name for name in ('a', 'b')]
  registration.add_mixture('rows_test', dict(zip(names, (3.0, 1.0), strict=True)))
  assert [(task.name, rate) for task, rate in rows.tasks_and_rates('rows_test')] == [(names[0], 3.0), (names[1], 1.0)]
  assert [rate for _, rate in rows.tasks_and_rates(names[0])] == [1.0]
  with pytest.raises(UsageError, match='no SeqIO task or mixture'):
    rows.tasks_and_rates('rows_test.c')


# --- scores -----------------------------------------------------------------------------------------------------------

THREE = [CLASSIFICATION | {'labels': [label], 'id': name} for label, name in ((1, 'a'), (0, 'b'), (1, 'c'))]
SCORES = [np.array(logits, np.float32) for logits in ([0, 1], [0, 1], [2, 3])]


def test_t5s_accuracy_works_without_a_postprocess_fn():
  task = make_task(*THREE, metric_fns=[t5_metrics.accuracy])
  assert rows.metrics(task, read(task), SCORES, 'classification') == {'accuracy': pytest.approx(200 / 3)}


def test_metrics_get_what_postprocess_fn_makes_of_targets_and_predictions_and_the_logits():
  def postprocess(output, example, is_target):
    return f'{example["id"].decode()} {output} {is_target}'

  def of_predictions(targets, predictions):
    assert targets == ['a 1 True', 'b 0 True', 'c 1 True']
    assert predictions == ['a 1 False', 'b 1 False', 'c 1 False']
    return {'first': 1}

  def of_scores(targets, scores):
    assert len(targets) == 3
    return {'second': scores[2][1]}

  task = make_task(*THREE, metric_fns=[of_scores, of_predictions], postprocess_fn=postprocess)
  scores = rows.metrics(task, read(task), SCORES, 'classification')
  assert scores == {'first': 1.0, 'second': 3.0}
  assert {type(value) for value in scores.values()} == {float}


def test_predictions_are_a_json_object_a_line_with_what_identifies_the_row():
  task = make_task(*THREE)
  named = {'labels': seqio.Feature(rows.LabelVocabulary(('no', 'yes')), add_eos=False, dtype=tf.int32)}
  task = task.replace(output_features=task.output_features | named)
  lines = rows.prediction_lines(task, read(task), SCORES, 'classification').splitlines()
  assert [json.loads(line) for line in lines] == [{'id': name, 'prediction': 'yes'} for name in 'abc']
  tagged = make_task({'input_ids': [5, 6], 'labels': [-1, 1]}).replace(output_features=task.output_features)
  (line,) = rows.prediction_lines(tagged, read(tagged, 'tagging'), [np.eye(2)], 'tagging').splitlines()
  assert json.loads(line) == {'prediction': ['no', 'yes']}
  span = make_task({'input_ids': [5, 6], 'labels': [1, 1]})
  (line,) = rows.prediction_lines(span, read(span, 'qa'), [np.array([[0, 1], [2, 0]])], 'qa').splitlines()
  assert json.loads(line) == {'prediction': [1, 0]}
