"""`python -m tasks.metrics`: scores of prediction files, checked against figures worked out by hand."""

import json
import shutil
import subprocess
import sys

import pytest

from rembert.errors import UsageError
from tasks.metrics.__main__ import TASKS, averages, main, score

# By task: prediction, gold labels, and what XTREME's evaluate.py gives for them.
SQUAD = {
  'data': [
    {
      'paragraphs': [
        {
          'context': 'Die Uhr schlug vier im alten Turm',
          'qas': [
            {'id': 'a', 'question': '?', 'answers': [{'text': 'vier', 'answer_start': 15}]},
            {'id': 'b', 'question': '?', 'answers': [{'text': 'alten Turm', 'answer_start': 23}]},
          ],
        }
      ]
    }
  ]
}
CASES = {
  'xnli': ('neutral\nneutral\n', 'neutral\nentailment\n', {'accuracy': 50}),
  'pawsx': ('1\n0\n1\n1', '1\n0\n1\n0', {'accuracy': 75}),
  'panx': (
    'B-LOC\nI-LOC\n\nO\nB-PER\n',
    'B-LOC\nI-LOC\n\nB-PER\nB-PER\n',
    {'precision': 100, 'recall': 200 / 3, 'f1': 80},
  ),
  'udpos': ('NOUN\nNOUN\nVERB\n', 'NOUN\nVERB\nVERB\n', {'precision': 0, 'recall': 0, 'f1': 0}),
  'xquad': ({'a': 'vier', 'b': 'Turm'}, SQUAD, {'exact_match': 50, 'f1': 100 * (1 + 2 / 3) / 2}),
  'mlqa': ({'a': 'die vier', 'b': 'Turm'}, SQUAD, {'exact_match': 50, 'f1': 100 * (1 + 2 / 3) / 2}),
  'tydiqa': ({'a': 'die vier', 'b': 'Turm'}, SQUAD, {'exact_match': 0, 'f1': 100 * (2 / 3 + 2 / 3) / 2}),
  'tatoeba': ('0\n2\n1\n', '0\n1\n1\n', {'accuracy': 200 / 3}),
  'bucc2018': ('a\tx\nb\ty\n', 'a\tx\nc\tz\nd\tw\n', {'precision': 50, 'recall': 100 / 3, 'f1': 40}),
}
TOLERANCE = 1e-9


def write(folder, task, content, language='de'):
  file = folder / task / f'test-{language}.{"tsv" if isinstance(content, str) else "json"}'
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(content if isinstance(content, str) else json.dumps(content), encoding='utf-8')
  return file


@pytest.fixture
def folders(tmp_path):
  """Predictions and labels of all nine tasks."""
  for task, (predictions, labels, _) in CASES.items():
    write(tmp_path / 'predictions', task, predictions)
    write(tmp_path / 'labels', task, labels)
  return tmp_path / 'predictions', tmp_path / 'labels'


def test_all_nine_tasks_are_scored(folders):
  found = score(*folders)
  assert tuple(found) == TASKS
  for task, (_, _, expected) in CASES.items():
    assert found[task]['de'] == {name: pytest.approx(value, abs=TOLERANCE) for name, value in expected.items()}, task


def test_predictions_of_a_run_score_what_the_run_says(root, tmp_path):
  labels = root / 'tests' / 'data' / 'xtreme' / 'labels'
  for task in ('xnli', 'pawsx', 'panx', 'udpos', 'tatoeba', 'bucc2018'):
    shutil.copytree(labels / task, tmp_path / task)
  found = score(tmp_path, labels)
  assert {values['f1' if 'f1' in values else 'accuracy'] for task in found.values() for values in task.values()} == {
    100
  }


def test_a_question_without_a_prediction_scores_zero_and_is_counted(folders):
  write(folders[0], 'xquad', {'a': 'vier'})
  assert score(*folders, ['xquad'])['xquad']['de'] == {'exact_match': 50, 'f1': 50, 'unanswered': 1}


def test_means_are_over_languages(folders):
  write(folders[0], 'xnli', 'entailment\nentailment\n', 'sw')
  write(folders[1], 'xnli', 'entailment\nentailment\n', 'sw')
  found = score(*folders, ['xnli'])
  assert averages(found) == {'xnli': {'accuracy': 75}}
  assert averages({'xquad': {'de': {'f1': 1.0, 'unanswered': 2}, 'el': {'f1': 3.0}}}) == {
    'xquad': {'f1': 2.0, 'unanswered': 2}
  }


def test_an_empty_sentence_keeps_its_place(folders):
  write(folders[0], 'panx', 'O\n\n\nB-PER\n')
  write(folders[1], 'panx', 'O\n\n\nB-PER\n')
  assert score(*folders, ['panx'])['panx']['de']['f1'] == 100
  write(folders[0], 'panx', 'O\n\nB-PER\n')
  with pytest.raises(UsageError, match='2 sentences are predicted, but there are 3'):
    score(*folders, ['panx'])


@pytest.mark.parametrize(
  ('task', 'content', 'message'),
  [
    ('xnli', 'neutral\n', '1 lines are predicted, but there are 2'),
    ('panx', 'B-LOC\n\nO\nB-PER\n', '1 tags in sentence 1 are predicted, but there are 2'),
    ('xquad', ['vier'], 'must be one JSON object'),
    ('mlqa', {'zzz': 'vier'}, 'not in the gold questions'),
    ('tatoeba', '0\nx\n1\n', "'x' is not a line number"),
    ('bucc2018', 'a\n', 'is not a pair of ids'),
    ('udpos', '', 'the file is empty'),
  ],
)
def test_what_is_not_in_the_format_is_one_error_with_the_file(folders, task, content, message):
  file = write(folders[0], task, content)
  with pytest.raises(UsageError, match=message) as error:
    score(*folders, [task])
  assert str(file) in str(error.value)


def test_missing_labels_and_missing_predictions_are_errors(folders, tmp_path):
  shutil.rmtree(folders[1] / 'xnli')
  with pytest.raises(UsageError, match='gold labels are missing'):
    score(*folders, ['xnli'])
  with pytest.raises(UsageError, match='no predictions found for panx'):
    score(tmp_path / 'nothing', folders[1], ['panx'])


def test_the_command_prints_a_table_and_writes_json(folders, tmp_path, capsys):
  output = tmp_path / 'scores.json'
  flags = [f'--predictions={folders[0]}', f'--labels={folders[1]}', '--task=xnli', f'--output={output}']
  assert main(flags) == 0
  printed = capsys.readouterr().out
  assert 'xnli' in printed
  assert '50.00' in printed
  assert json.loads(output.read_text()) == {
    'tasks': {'xnli': {'de': {'accuracy': 50.0}}},
    'mean': {'xnli': {'accuracy': 50.0}},
  }
  assert main([f'--predictions={tmp_path}/nothing', f'--labels={folders[1]}']) == 2


def test_labels_are_scored_without_tensorflow(folders):
  flags = [f'--predictions={folders[0]}', f'--labels={folders[1]}']
  tasks = [f'--task={task}' for task in ('xnli', 'pawsx', 'panx', 'udpos', 'mlqa', 'tatoeba', 'bucc2018')]
  code = (
    f'import sys, tasks.xtreme.benchmark; from tasks.metrics.__main__ import main; assert main({flags + tasks}) == 0; '
  )
  code += 'assert not {"tensorflow", "jax", "seqio", "t5"} & set(sys.modules)'
  subprocess.run([sys.executable, '-c', code], check=True, timeout=60)
