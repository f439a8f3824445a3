"""Exports in the hands of transformers: loaded without a word, the same numbers, the same words in the blanks."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from hugging_face_cases import CONFIGURATIONS, NUM_LABELS, TOLERANCE

import rembert
from rembert.checkpoint.load import import_model, open_source, save_workdir
from rembert.convert import tensorflow
from rembert.convert.huggingface import export
from rembert.inference.model import fill_masks, text_encoder
from rembert.model.heads import POOLED

pytestmark = pytest.mark.parity

ROOT = pathlib.Path(__file__).parent.parent.parent
HEADS = (None, 'mlm', 'classification', 'tagging', 'qa', 'multiple_choice', 'regression')


def their_class(head):
  import transformers

  names = {
    None: 'RemBertModel',
    'mlm': 'RemBertForMaskedLM',
    'classification': 'RemBertForSequenceClassification',
    'tagging': 'RemBertForTokenClassification',
    'qa': 'RemBertForQuestionAnswering',
    'multiple_choice': 'RemBertForMultipleChoice',
    'regression': 'RemBertForSequenceClassification',
  }
  return getattr(transformers, names[head])


def relative(ours, theirs):
  return np.abs(np.asarray(ours) - theirs).max() / np.abs(theirs).max()


# --- ours → theirs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize('fields', [{}, {'input_embedding_size': 32}], ids=['plain', 'I = H'])
@pytest.mark.parametrize('head', HEADS, ids=str)
def test_they_load_an_export_with_nothing_missing_left_over_or_new(saved, tmp_path, figures, head, fields):
  import torch

  model = saved(head, has_pooler=head in (None, *POOLED), initializer_range=0.05, **fields)
  export(model, tmp_path / 'exported')
  theirs, loading = their_class(head).from_pretrained(tmp_path / 'exported', output_loading_info=True)
  assert not any(loading.values()), loading
  ids = np.random.default_rng(0).integers(1, 331, (2, 3, 9) if head == 'multiple_choice' else (4, 9))
  mask = np.ones_like(ids)
  mask[0, ..., 6:] = 0
  with torch.no_grad():
    output = theirs.eval()(torch.tensor(ids), attention_mask=torch.tensor(mask))
  ours = rembert.load(tmp_path / 'exported', head)(ids, attention_mask=mask)
  if head is None:
    figure = relative(ours.last_hidden_state, output.last_hidden_state.numpy())
  elif head == 'qa':
    figure = relative(ours.logits, np.stack([output.start_logits.numpy(), output.end_logits.numpy()], axis=-1))
  else:
    figure = relative(ours.logits, output.logits.numpy())
  figures.enter(f'export, {head}{", I = H" if fields else ""}', 'output', {'': figure})
  assert figure <= TOLERANCE


def test_a_tied_model_is_the_same_function_there(saved, tmp_path):
  import torch

  model = saved('mlm', output_embedding_size=18, tie_word_embeddings=True)
  export(model, tmp_path / 'exported')
  theirs, loading = their_class('mlm').from_pretrained(tmp_path / 'exported', output_loading_info=True)
  assert not any(loading.values()), loading
  ids = np.arange(1, 19).reshape(2, 9)
  with torch.no_grad():
    expected = theirs.eval()(torch.tensor(ids)).logits.numpy()
  assert relative(rembert.load(model.workdir, 'mlm')(ids).logits, expected) <= TOLERANCE


# --- theirs → ours → theirs -------------------------------------------------------------------------------------------


@pytest.fixture
def their_folder(tmp_path):
  """A folder that transformers wrote, with random weights."""

  def write(head, name='odd sizes', **options):
    import hugging_face_models

    model = hugging_face_models.random_model(CONFIGURATIONS[name], head)
    model.save_pretrained(tmp_path / 'theirs', **options)
    return tmp_path / 'theirs', model

  return write


def all_weights(folder):
  return {
    name: tensor for file in folder.glob('*.safetensors') for name, tensor in safetensors.numpy.load_file(file).items()
  }


@pytest.mark.parametrize('head', HEADS[1:])
@pytest.mark.parametrize('name', ['odd sizes', 'I = H, projected', 'odd sizes, tanh'])
def test_hugging_faces_weights_return_bitwise_equal(their_folder, tmp_path, head, name):
  folder, _ = their_folder(head, name)
  save_workdir(import_model(open_source(folder)), tmp_path / 'ours', None)
  export(open_source(tmp_path / 'ours'), tmp_path / 'again')
  before, after = all_weights(folder), all_weights(tmp_path / 'again')
  assert before.keys() == after.keys()
  assert all(np.array_equal(before[name], after[name]) for name in before)


def test_their_shards_are_read(their_folder):
  folder, model = their_folder('mlm', max_shard_size='50KB')
  assert len(list(folder.glob('*.safetensors'))) > 2
  imported = import_model(open_source(folder))
  weight = model.cls.predictions.decoder.weight.detach().numpy()
  assert np.array_equal(imported.leaves['mlm/output_embedding'][: len(weight)], weight)


def test_half_precision_of_theirs_is_read(their_folder):
  import torch

  folder, model = their_folder('mlm')
  model.to(torch.bfloat16).save_pretrained(folder)
  bias = import_model(open_source(folder)).leaves['mlm/transform/bias']
  assert np.array_equal(bias, model.cls.predictions.dense.bias.detach().float().numpy())


def test_labels_go_there_and_come_back(their_folder, tmp_path):
  import transformers

  folder, model = their_folder('tagging')
  model.config.id2label = {index: f'B-{index}' for index in range(NUM_LABELS)}
  model.config.label2id = {label: index for index, label in model.config.id2label.items()}
  model.save_pretrained(folder)
  save_workdir(import_model(open_source(folder)), tmp_path / 'ours', None)
  saved = open_source(tmp_path / 'ours')
  assert saved.labels == tuple(f'B-{index}' for index in range(NUM_LABELS))
  export(saved, tmp_path / 'again')
  assert transformers.AutoConfig.from_pretrained(tmp_path / 'again').id2label == model.config.id2label


# --- a model that was trained here ------------------------------------------------------------------------------------

TEXTS = (
  'Die Donau ist ein [MASK] in Europa.',
  'The [MASK] is the largest city of the country.',
  'Mto huu una [MASK] mengi.',
  '这座城市的[MASK]很大。',
  'Η πόλη βρίσκεται στην [MASK] της χώρας.',
  'แม่น้ำนี้ไหลผ่าน[MASK]ใหญ่',
)


@pytest.fixture(scope='module')
def trained(tmp_path_factory) -> pathlib.Path:
  """The run of `make smoke` that REMBERT_SMOKE_RUN names; otherwise one of the same configuration, of 40 steps."""
  if run := os.environ.get('REMBERT_SMOKE_RUN'):
    return pathlib.Path(run)
  workdir = tmp_path_factory.mktemp('trained') / 'smoke'
  command = ['-m', 'rembert.main', '--gin_file=gin/pretrain_smoke.gin', f'--workdir={workdir}']
  shorter = ['--gin.train.steps=40', '--gin.train.eval_every=0', '--gin.optimizer.warmup_steps=5']
  subprocess.run([sys.executable, *command, *shorter], cwd=ROOT, check=True, timeout=600, capture_output=True)
  return workdir


def test_their_pipeline_fills_the_same_five_pieces_into_every_blank(trained, tmp_path):
  """Compared by probability, rank by rank: of two pieces as likely as each other either may come first, in float32."""
  import transformers

  saved = open_source(trained)
  export(saved, tmp_path / 'exported')
  theirs = transformers.pipeline('fill-mask', str(tmp_path / 'exported'), top_k=saved.config.vocab_size)
  ours = rembert.load(trained, 'mlm')
  encoder = text_encoder(ours)
  for text in TEXTS:
    [found] = fill_masks(ours, encoder, text, top_k=5)
    probabilities = {candidate['token']: candidate['score'] for candidate in theirs(text)}
    most_likely = np.array(sorted(probabilities.values(), reverse=True)[:5])
    pieces = [candidate.id for candidate in found]
    assert len(set(pieces)) == 5
    assert relative([probabilities[piece] for piece in pieces], most_likely) <= TOLERANCE, text
    assert relative([candidate.probability for candidate in found], most_likely) <= TOLERANCE, text


def test_text_and_labels_of_ones_own_become_a_model_of_their_pipeline(trained, tmp_path):
  """From an empty folder: Parquet → corpus → continued pre-training → fine-tuning on a CSV → export → transformers."""
  import pyarrow
  import pyarrow.parquet
  import transformers

  subjects = ('The river', 'Our neighbour', 'This old bridge', 'A small dog', 'Der Hund', 'Die alte Brücke')
  verbs = ('is good and bright', 'is bad and grey', 'ist gut und hell', 'ist schlecht und grau')
  texts = [f'{subject} {verb}, in year {year}.' for subject in subjects for verb in verbs for year in range(5)]
  languages = ['de' if ' ist ' in text else 'en' for text in texts]
  table = pyarrow.table({'body': texts, 'lang': languages})
  pyarrow.parquet.write_table(table, tmp_path / 'own.parquet', row_group_size=50)
  rows = [f'"{text}",{"praise" if "good" in text or "gut" in text else "blame"}' for text in texts]
  (tmp_path / 'own.csv').write_text('\n'.join(['opinion text,verdict', *rows]) + '\n', encoding='utf-8')
  columns = ['--gin.dataset.text=opinion text', '--gin.dataset.label=verdict']
  few = ['--gin.train.batch_size=8', '--gin.train.sequence_length=64', '--gin.train.eval_every=0']

  def program(module, *arguments):
    environment = os.environ | {'PYTHONPATH': str(ROOT)}
    command = [sys.executable, '-m', module, *arguments]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=600, capture_output=True)

  own = ['--text=own.parquet', '--text_column=body', '--language_column=lang', '--min_characters=20']
  program('tasks.corpus', *own, '--held_out=0.1', '--output=corpus')
  continued = ['--gin_file=gin/continue_pretraining.gin', '--workdir=continued', f'--gin.train.init_from={trained}']
  program('rembert.main', *continued, '--gin.data.corpus=corpus', '--gin.train.steps=2', *few)
  tuned = ['--gin_file=gin/finetune_own.gin', '--workdir=tuned', '--gin.train.init_from=continued', *columns, *few]
  files = ['--gin.dataset.train=own.csv', '--gin.dataset.dev=own.csv']
  program('rembert.main', *tuned, *files, '--gin.optimizer.learning_rate=1e-3', '--gin.finetune.epochs=4')
  program('rembert.convert', 'to_hf', 'tuned/best', 'exported')
  predict = ['classify', 'tuned/best', 'own.csv', 'predictions.jsonl', '--text_column=opinion text']
  program('rembert.jobs.predict', *predict)

  theirs = transformers.pipeline('text-classification', str(tmp_path / 'exported'), top_k=None)(texts)
  ours = [json.loads(line) for line in (tmp_path / 'predictions.jsonl').read_text(encoding='utf-8').splitlines()]
  for scores, row in zip(theirs, ours, strict=True):
    assert {score['label'] for score in scores} == {'praise', 'blame'}
    best = max(scores, key=lambda score: score['score'])
    assert row['prediction'] == best['label']
    assert row['probabilities'][best['label']] == pytest.approx(best['score'], abs=1e-4)


# --- the released weights ---------------------------------------------------------------------------------------------

# transformers' own integration test: input, and the first three units of every position.
RELEASED_IDS, RELEASED_TYPES = [[312, 56498, 313, 2125, 313]], [[0, 0, 0, 1, 1]]
RELEASED_STATES = [
  [0.0754, -0.2022, 0.1904],
  [-0.3354, -0.3692, -0.4791],
  [-0.2314, -0.6729, -0.0749],
  [-0.0396, -0.3105, -0.4234],
  [-0.1571, -0.0525, 0.5353],
]
# The same from the original TensorFlow code, as that test's comment records it.
ORIGINAL_STATES = [
  [0.07630594, -0.20146066, 0.19107051],
  [-0.34056145, -0.36971670, -0.48082739],
  [-0.22587086, -0.66563159, -0.07844287],
  [-0.04145476, -0.30772182, -0.42316967],
  [-0.15887849, -0.05452993, 0.53561008],
]


def released(variable: str) -> str:
  """Where the released weights are; the test is skipped, with the reason, if they are not named."""
  path = os.environ.get(variable)
  if not path:
    pytest.skip(f'the released weights are not here: {variable}=PATH make parity compares with them')
  return path


def test_the_released_model_gives_the_states_that_transformers_records():
  output = rembert.load(released('REMBERT_RELEASED_HF'))(RELEASED_IDS, RELEASED_TYPES)
  np.testing.assert_allclose(output.last_hidden_state[0, :, :3], RELEASED_STATES, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
  ('hidden_act', 'states', 'tolerance'), [('gelu', RELEASED_STATES, 1e-4), ('gelu_tanh', ORIGINAL_STATES, 1e-4)]
)
def test_the_original_checkpoint_gives_both_by_its_two_gelus(hidden_act, states, tolerance):
  from rembert.inference.model import LoadedModel
  from rembert.model.config import Execution

  source = tensorflow.open_source(released('REMBERT_RELEASED_TF'), hidden_act=hidden_act)
  output = LoadedModel(import_model(source, head=None), Execution())(RELEASED_IDS, RELEASED_TYPES)
  np.testing.assert_allclose(output.last_hidden_state[0, :, :3], states, rtol=tolerance, atol=tolerance)
