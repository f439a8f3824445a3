"""Tables of one's own, of every kind, fine-tuned, evaluated and predicted by the real programs."""

import csv
import functools
import json
import pathlib
import random

import numpy as np
import pytest
from final_states import assert_bitwise_equal, final_state

import rembert
from rembert.checkpoint.load import open_source
from rembert.convert.huggingface import export
from rembert.jobs import predict
from rembert.model.config import RemBertConfig

CONFIG = RemBertConfig(
  vocab_size=2000,
  input_embedding_size=16,
  output_embedding_size=16,
  hidden_size=32,
  num_hidden_layers=1,
  num_attention_heads=2,
  intermediate_size=64,
  max_position_embeddings=64,
  initializer_range=0.1,
)
VALUES = {
  'finetune.epochs': 12,
  'finetune.evaluations_per_epoch': 0.25,
  'finetune.eval_batch_size': 16,
  'train.batch_size': 8,
  'train.sequence_length': 32,
  'train.log_every': 11,
  'train.checkpoint_every': 60,
  'optimizer.learning_rate': 4e-3,
  'optimizer.bias_correction': True,
}
COUNT = 48


# --- data, written here -----------------------------------------------------------------------------------------------

PLACES = ('Ankara', 'Zürich', 'القاهرة', '北京', 'Kisumu', 'ירושלים')


def write(path, rows, mark=''):
  """Writes CSV with CRLF, TSV or JSONL; returns the path."""
  with path.open('w', encoding='utf-8', newline='') as file:
    file.write(mark)
    if path.suffix == '.jsonl':
      file.writelines(json.dumps(row, ensure_ascii=False) + '\n' for row in rows)
      return path
    writer = csv.DictWriter(file, list(rows[0]), delimiter='\t' if path.suffix == '.tsv' else ',')
    writer.writeheader()
    writer.writerows(rows)
  return path


def places(seed=0):
  """Pairs of a place and a source of random choices."""
  draw = random.Random(seed)
  return [(draw.choice(PLACES), draw) for _ in range(COUNT)]


def reviews(file):
  """Two labels that are numbers, in CSV with a byte order mark, and line breaks in quotes."""
  rows = [
    {'id': 7, 'text': f'{"Good" if number % 3 else "Bad"}, "{place}"\nand, well', 'label': int(number % 3 != 0)}
    for number, (place, _) in enumerate(places())
  ]
  return write(file.with_suffix('.csv'), rows, mark='\ufeff'), {}


def premises(file):
  """Pairs in Turkish, in TSV: the label follows from the second place."""
  rows = []
  for place, draw in places(1):
    other = draw.choice(PLACES[:2])
    label = 'aynı' if other == 'Ankara' else 'başka'
    rows.append({'premise': f'Dün {place}.', 'hypothesis': f'Bugün {other}?', 'gold label': label})
  return write(file.with_suffix('.tsv'), rows), {'text': 'premise', 'second_text': 'hypothesis', 'label': 'gold label'}


def stars(file):
  """Numbers, in JSONL."""
  words = {0.0: 'nie', 0.5: 'oft', 1.0: 'immer'}
  scored = [(place, draw.choice([*words])) for place, draw in places(2)]
  rows = [{'text': f'{words[score]} {place}', 'label': score} for place, score in scored]
  return write(file.with_suffix('.jsonl'), rows), {}


def dates(file):
  """Dates in CoNLL columns, whose words and tags have spaces."""
  lines = []
  for number, (place, _) in enumerate(places()):
    lines += [f'{place}\tB-place name', 'am\tO', f'{number % 28 + 1}. Mai\tB-DATE', '2024\tI-DATE', '']
  lines[3:3] = ['sehr lange ' * 30 + '\tO']
  file.with_suffix('.conll').write_text('\n'.join(lines) + '\n', encoding='utf-8')
  return file.with_suffix('.conll'), {}


def questions(file):
  """SQuAD's JSON in Chinese; ids repeat."""
  question = lambda place: {'id': 'q', 'question': '你在哪里？', 'answers': [{'text': place, 'answer_start': 2}]}
  paragraphs = [{'context': f'我在{place}。天气好。', 'qas': [question(place)]} for place, _ in places()]
  content = json.dumps({'version': '1.1', 'data': [{'title': '', 'paragraphs': paragraphs}]}, ensure_ascii=False)
  file.with_suffix('.json').write_text(content, encoding='utf-8')
  return file.with_suffix('.json'), {}


def choices(file):
  """Three columns of choices; the label is the column's name."""
  rows = []
  for place, draw in places(3):
    right = draw.choice('ABC')
    words = {letter: 'evet' if letter == right else 'hayır, hiçbir zaman' for letter in 'ABC'}
    rows.append({'text': place, 'start': 'Bence', **words, 'label': right})
  return write(file.with_suffix('.csv'), rows), {'second_text': 'start', 'choices': "('A', 'B', 'C')"}


PAIR = 'classify --text_column=premise --second_text_column=hypothesis'
CHOICES = 'choose --second_text_column=start --choices_column=A,B,C'
# The table, the score and its least value, the labels, and the command that predicts.
KINDS = {
  'classification': (reviews, 'accuracy', 90, ('0', '1'), 'classify'),
  'pair_classification': (premises, 'accuracy', 90, ('aynı', 'başka'), PAIR),
  'regression': (stars, 'pearson', 90, (), 'regress'),
  'tagging': (dates, 'f1', 80, ('B-DATE', 'B-place name', 'I-DATE', 'O'), 'tag'),
  'question_answering': (questions, 'f1', 30, (), 'answer'),
  'multiple_choice': (choices, 'accuracy', 80, (), CHOICES),
}


@pytest.fixture(scope='module')
def finetune(program, untrained, tmp_path_factory, rows_once):
  """Function (kind, workdir, bindings) → the program on a table of that kind, which is train, dev and test."""
  pretrained = untrained(CONFIG)

  def make(kind, workdir, **bindings):
    file, columns = KINDS[kind][0](tmp_path_factory.mktemp(kind) / 'table')
    values = VALUES | {'dataset.kind': kind, 'train.init_from': pretrained}
    values |= {f'dataset.{split}': file for split in ('train', 'dev', 'test')}
    values |= {f'dataset.{name}': value for name, value in columns.items()}
    return program(workdir, 'gin/finetune_own.gin', values | bindings)

  return make


# --- runs -------------------------------------------------------------------------------------------------------------


def each(*kinds):
  """Kinds as parameters; one of them is learned quickly."""
  return [pytest.param(kind, marks=() if kind == 'classification' else pytest.mark.slow) for kind in kinds]


@pytest.fixture(scope='module')
def learned(finetune, succeed, tmp_path_factory):
  """Kind → a run of it, complete; `copy` is its workdir as SIGKILL would have left it at step 66 of 72."""

  @functools.cache
  def learn(kind: str):
    run = finetune(kind, tmp_path_factory.mktemp('own') / 'run')
    run.kind, run.copy = kind, run.workdir.parent / 'copy'
    run.output = succeed(run, on_log=lambda step, _: step == 66 and run.copy_workdir(run.copy, 60)).stdout
    return run

  return learn


@pytest.fixture(params=each(*KINDS))
def run(request, learned):
  """A run of each kind, complete."""
  return learned(request.param)


def test_a_table_is_learned_and_scored_next_to_its_baseline(run):
  _, score, least, labels, _ = KINDS[run.kind]
  [result] = run.results()['tasks']['own'].values()
  assert result['scores'][score] > least, run.output
  assert result['baseline'].keys() == result['scores'].keys()
  assert result['baseline'][score] < least
  assert result['examples'] == COUNT
  source = open_source(run.workdir)
  assert source.labels == labels
  for label in labels:
    assert f'{label} ' in run.output
  lines = [json.loads(line) for line in (run.workdir / result['predictions']).read_text('utf-8').splitlines()]
  assert len(lines) == COUNT
  assert all('prediction' in line and 'where' in line for line in lines)


def rows_of(file):
  """Rows of a file of predictions."""
  if file.suffix == '.jsonl':
    return [json.loads(line) for line in file.read_text('utf-8').splitlines()]
  with file.open(encoding='utf-8', newline='') as lines:
    return list(csv.DictReader(lines, delimiter='\t'))


def test_predictions_for_a_table_are_those_of_the_evaluation(run, tmp_path):
  write_table, *_, command = KINDS[run.kind]
  file, _ = write_table(tmp_path / 'table')
  command, *columns = command.split()
  output = tmp_path / ('out.tsv' if run.kind == 'classification' else 'out.jsonl')
  assert predict.main([command, str(run.workdir / 'best'), str(file), str(output), *columns]) == 0
  found = rows_of(output)
  [result] = run.results()['tasks']['own'].values()
  evaluated = rows_of(run.workdir / result['predictions'])
  assert len(found) == len(evaluated) == COUNT
  for row, expected in zip(found, evaluated, strict=True):
    if run.kind == 'regression':
      assert row['prediction'] == pytest.approx(expected['prediction'], abs=1e-5)
    elif run.kind != 'tagging' or len(row['prediction']) < 5:  # the long sentence has longer rows here
      label = expected['prediction']
      assert row['prediction'] == (label if output.suffix == '.jsonl' else str(label))
    if 'probabilities' in row and output.suffix == '.jsonl':
      assert sum(row['probabilities'].values()) == pytest.approx(1, abs=1e-6)
  if run.kind == 'classification':
    assert found[0]['id'] == '7'
    assert '\n' in found[0]['text']


@pytest.mark.parametrize('kind', each('regression', 'multiple_choice'))
def test_a_model_of_numbers_or_choices_goes_to_hugging_face_and_back(kind, learned, tmp_path):
  run = learned(kind)
  export(open_source(run.workdir), tmp_path / 'exported')
  source = open_source(tmp_path / 'exported')
  assert (source.head, source.labels) == (open_source(run.workdir).head, KINDS[run.kind][3])
  model = rembert.load(tmp_path / 'exported', source.head)
  ids = np.arange(5, 11)[None] if run.kind != 'multiple_choice' else np.arange(5, 11).reshape(1, 2, 3)
  ours = rembert.load(run.workdir, source.head)
  np.testing.assert_array_equal(model(ids).logits, ours(ids).logits)


# --- what may happen to a run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize('kind', each('classification', 'regression'))
def test_a_run_resumes_bitwise_and_a_changed_table_is_another_run(kind, learned, program, succeed):
  whole = learned(kind)
  resumed = program(whole.copy)
  resumed.arguments = [argument.replace(str(whole.workdir), str(whole.copy)) for argument in whole.arguments]
  rows = whole.copy / 'rows' / 'own.all' / 'rows.array_record'
  before = rows.stat().st_mtime_ns
  assert 'resuming from step 60' in succeed(resumed).stdout
  assert rows.stat().st_mtime_ns == before
  assert_bitwise_equal(final_state(resumed.workdir, 72), final_state(whole.workdir, 72))
  assert resumed.results()['tasks'] == whole.results()['tasks']
  table = pathlib.Path(next(value for value in whole.arguments if 'dataset.train' in value).partition('=')[2])
  text = table.read_text('utf-8')
  table.write_text(text.replace('Good', 'Fine').replace('nie', 'kaum'), 'utf-8')
  refused = resumed.run()
  table.write_text(text, 'utf-8')
  assert refused.returncode == 2
  assert 'training rows' in refused.stderr


# --- evaluated on other tables ----------------------------------------------------------------------------------------


@pytest.fixture
def evaluate(learned, program):
  """Function (workdir, test files) → the program that evaluates the classifier."""

  def make(workdir, test, **bindings):
    values = {
      'run.mode': 'evaluate',
      'dataset.test': test,
      'evaluate.model': learned('classification').workdir / 'best',
    }
    values |= {'finetune.eval_batch_size': 16, 'train.sequence_length': 32}
    return program(workdir, 'gin/finetune_own.gin', values | bindings)

  return make


def test_languages_have_files_and_results_of_their_own_and_an_unlabelled_test_file_is_predicted(
  evaluate, succeed, tmp_path
):
  file, _ = reviews(tmp_path / 'train')
  with file.open(encoding='utf-8-sig', newline='') as lines:
    rows = [{'text': row['text']} for row in csv.DictReader(lines)][:5]
  write(tmp_path / 'sw.jsonl', rows)
  test = {'de': str(file), 'sw': str(tmp_path / 'sw.jsonl')}
  run = evaluate(tmp_path / 'run', test)
  output = succeed(run).stdout
  found = run.results()['tasks']['own']
  assert found['de']['scores']
  assert (found['sw']['scores'], found['sw']['examples']) == (None, 5)
  assert 'no scores without labels' in found['sw']['note']
  assert len(rows_of(run.workdir / found['sw']['predictions'])) == 5
  assert 'own sw: no score' in output


def test_a_model_is_evaluated_on_another_table_with_its_own_labels(evaluate, succeed, tmp_path):
  write(tmp_path / 'test.csv', [{'text': 'Good', 'label': 1}])
  evaluated = evaluate(tmp_path / 'evaluated', tmp_path / 'test.csv')
  succeed(evaluated)
  assert evaluated.results()['tasks']['own']['all']['scores']['accuracy'] == 100
  write(tmp_path / 'test.csv', [{'text': 'Good', 'label': 1}, {'text': 'So so', 'label': 2}])
  refused = evaluate(tmp_path / 'refused', tmp_path / 'test.csv').run()
  assert refused.returncode == 2
  assert "unknown label '2'" in refused.stderr
  assert 'test.csv:3' in refused.stderr
  assert '0, 1' in refused.stderr
