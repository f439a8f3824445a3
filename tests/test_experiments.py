"""gin/experiments and gin/scales: every row of the ablations is a run, and relates to the others as in the paper."""

import dataclasses
import re

import pytest
from gin_files import configured, head_commands, head_comment, printed_table

from launch import xtreme
from rembert import configuration, main, paper
from rembert.configuration import FinetuneOptions
from rembert.errors import UsageError
from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import count_parameters
from rembert.train.optimizer import OptimizerConfig
from rembert.train.trainer import TrainConfig
from tasks.xtreme import XtremeConfig

SCALES = ('full', 'small', 'mini', 'micro')
ROWS = [(row.table, row.name) for rows in paper.TABLES.values() for row in rows]
MODELS = sorted({name for _, name in ROWS})
# V, positions, H, layers, narrow, wide, reinvested H, reinvested L; V and the layers of the English rows.
SIZES = {
  'full': (120_000, 512, 768, 12, 128, 3072, 1024, 23, 30_522, 15, 24),
  'small': (30_000, 256, 192, 12, 32, 768, 256, 23, 7_600, 15, 24),
  'mini': (8_000, 128, 144, 4, 24, 576, 192, 8, 2_000, 5, 8),
  'micro': (5_312, 128, 96, 4, 16, 384, 128, 8, 1_296, 5, 8),
}


def by_formula(name: str, scale: str) -> tuple[int, int]:
  """Parameters from first principles (the paper's appendix A.1, with pooler, transform and bias)."""
  v, positions, h, layers, narrow, wide, wider, more, english_v, english_more, english_most = SIZES[scale]
  depth = {'layers23': more, 'layers23to12': more, 'english_layers15to12': english_more}
  depth |= {'english_layers24to12': english_most}
  i = h if name.endswith('coupled768') or name.startswith('in768') else narrow
  e = h if name.endswith(('768', 'hidden1024', 'layers23')) else wide if name.endswith('3072') else narrow
  v = english_v if name.startswith('english') else v
  h = wider if name == 'hidden1024' else h
  layer = 12 * h * h + 13 * h
  around = v * i + positions * i + 2 * i + 2 * i + (i * h + h if i != h else 0) + h * h + h
  head = h * e + e + 2 * e + (0 if 'coupled' in name else v * e) + v
  trained = depth.get(name, layers)
  kept = layers if 'to12' in name else trained
  return around + trained * layer + head, around + kept * layer


def files(table: int, name: str, scale: str = 'full') -> list[str]:
  """As they are given on the command line; the full scale needs none."""
  row = f'gin/experiments/table{table}/{name}.gin'
  return [row] if scale == 'full' else [row, f'gin/scales/{scale}.gin']


def macros(root, scale: str) -> dict[str, str]:
  lines = (root / 'gin' / 'scales' / f'{scale}.gin').read_text().splitlines()
  return dict(line.split(' = ') for line in lines if line and not line.startswith('#'))


# --- rows --------------------------------------------------------------------


def test_every_row_of_the_tables_has_a_file_and_every_file_a_row(root):
  found = {path.relative_to(root / 'gin' / 'experiments').as_posix() for path in root.glob('gin/experiments/*/*.gin')}
  assert found == {f'table{table}/{name}.gin' for table, name in ROWS}
  assert len(found) == 21


@pytest.mark.parametrize('scale', SCALES)
@pytest.mark.parametrize(('table', 'name'), ROWS)
def test_a_row_is_its_model_trained_as_all_others(table, name, scale):
  config = configured(*files(table, name, scale))
  assert (config.paper.table, config.paper.row, config.paper.scale) == (table, name, scale)
  counts = count_parameters(config.model, kept_layers=config.paper.kept_layers)
  assert (counts.pre_training, counts.fine_tuning) == by_formula(name, scale)
  configuration.load([f'gin/models/{name}.gin', *files(table, name, scale)[1:]], [])
  model = configuration.build(RemBertConfig)
  assert config.model == dataclasses.replace(model, pad_vocab_to_multiple_of=config.model.pad_vocab_to_multiple_of)
  english = name.startswith('english')
  assert config.data.languages == (('en',) if english else ('mbert',))
  other = configured(*files(13 if english else 4, 'english_in128_out128' if english else 'in128_out128', scale))
  for part in ('execution', 'data', 'vocabulary', 'masking', 'packing', 'optimizer', 'mesh', 'train'):
    assert getattr(config, part) == getattr(other, part)


@pytest.mark.parametrize(
  ('table', 'name', 'scale'), [(5, 'layers23to12', 'full'), (13, 'english_in128_out3072', 'mini')]
)
def test_a_dry_run_of_a_row_shows_its_exact_counts_and_at_full_scale_the_papers(
  table, name, scale, capsys, monkeypatch
):
  monkeypatch.setenv('COLUMNS', '100')
  assert main.main([*(f'--gin_file={file}' for file in files(table, name, scale)), '--dry_run']) == 0
  shown = printed_table(capsys.readouterr().out)
  assert '\n total {:,} {:,} \n'.format(*by_formula(name, scale)) in shown
  printed = paper.row(table, name)
  figures = f'{printed.pre_training_millions}M {printed.fine_tuning_millions}M'
  assert (f'\n in the paper ({printed.title}) {figures} \n' in shown) == (scale == 'full')
  assert 'another model' not in shown
  assert (f'{printed.title}, at scale {scale}' in shown) == (scale != 'full')


def test_the_full_run_is_the_papers_as_far_as_it_says():
  config = configured(*files(4, 'in128_out768'))
  train = config.train
  assert train.steps * train.batch_size * train.sequence_length == pytest.approx(26e9, rel=2e-3)
  assert config == configured('gin/pretrain_base.gin')
  assert config.optimizer == OptimizerConfig(learning_rate=2e-4, warmup_steps=10_000)  # else Table 14's


@pytest.mark.parametrize(('table', 'name'), ROWS)
def test_the_head_comment_says_what_is_reproduced_and_how(table, name):
  head = head_comment(*files(table, name))
  printed = paper.row(table, name)
  assert re.match(rf'Table {table}, row \d \({re.escape(printed.label)}\): ', head)
  assert '{:,} parameters to pre-train, {:,} to fine-tune.'.format(*by_formula(name, 'full')) in head
  assert f'The paper says {printed.pre_training_millions}M and {printed.fine_tuning_millions}M.' in head
  for scores in printed.scores.values():
    assert f' {"/".join(map(str, scores))}' in head
  for words in ('Stated by the paper: ', 'Left open'):
    assert words in head


def test_every_command_of_the_head_comments_can_be_given(xtreme_samples, capsys):
  fine_tuning = {}
  for table, name in ROWS:
    full, mini, tuned = head_commands(*files(table, name))
    assert [command[2] for command in (full, mini, tuned)] == ['rembert.main', 'rembert.main', 'launch.xtreme']
    assert main.parse(full[3:])[0].gin_file == files(table, name)
    assert main.parse(mini[3:])[0].gin_file == files(table, name, 'mini')
    keeps = '--gin.RemBertConfig.num_hidden_layers=12' in tuned
    assert keeps == (configured(*files(table, name)).paper.kept_layers is not None) == ('to12' in name)
    kinds = tuple(word for word in tuned[3:] if not word.startswith(('--data_dir', '--init')))
    fine_tuning.setdefault(kinds, next(word for word in tuned if word.startswith('--init')))
  for words, init in fine_tuning.items():  # they differ in tasks and kept layers alone
    assert xtreme.main([*words, init, f'--data_dir={xtreme_samples.root}', '--dry_run']) == 0
    kept = '--gin.RemBertConfig.num_hidden_layers=12'
    assert (kept in capsys.readouterr().out) == (kept in words)


# --- scales ------------------------------------------------------------------


def test_scales_are_tables_of_the_same_names_and_nothing_else(root):
  assert {path.stem for path in root.glob('gin/scales/*.gin')} == set(SCALES)
  names = [list(macros(root, scale)) for scale in SCALES]
  assert names[0] == names[1] == names[2]
  assert all(re.fullmatch(r'[A-Z][A-Z0-9_]*', name) for name in names[0])


def test_every_number_of_a_scale_is_used(root):
  used = set()
  for path in root.glob('gin/**/*.gin'):
    used |= set(re.findall(r'%([A-Z]\w*)', re.sub(r'^#.*$', '', path.read_text(), flags=re.MULTILINE)))
  assert used == set(macros(root, 'full'))


@pytest.mark.parametrize('scale', SCALES)
def test_sizes_keep_their_roles_at_every_scale(root, scale):
  number = {name: int(value) for name, value in macros(root, scale).items() if value.isdigit()}
  h = number['HIDDEN']
  assert number['NARROW'] * 6 == h
  assert number['WIDE'] == number['FEED_FORWARD'] == 4 * h
  assert number['WIDER_HIDDEN'] * 3 == 4 * h
  assert number['WIDER_FEED_FORWARD'] == 4 * number['WIDER_HIDDEN']
  assert h // number['HEADS'] == number['WIDER_HIDDEN'] // number['WIDER_HEADS']
  assert h % number['HEADS'] == number['WIDER_HIDDEN'] % number['WIDER_HEADS'] == 0
  assert all(number[name] % 8 == 0 for name in ('HIDDEN', 'NARROW', 'WIDE', 'WIDER_HIDDEN', 'VOCABULARY'))
  assert number['SEQUENCE'] <= number['POSITIONS']


@pytest.mark.parametrize('scale', SCALES)
def test_rows_stand_to_each_other_as_in_the_paper(scale):
  def counts(name):
    table = next(table for table, row in ROWS if row == name)
    config = configured(*files(table, name, scale))
    exact = count_parameters(config.model, kept_layers=config.paper.kept_layers)
    return exact, exact.without(config.paper.uncounted_parts)

  exact, by_rule = zip(*map(counts, MODELS), strict=True)
  exact, by_rule = (dict(zip(MODELS, each, strict=True)) for each in (exact, by_rule))
  tuned = {name: each.fine_tuning for name, each in exact.items()}
  trained = {name: each.pre_training for name, each in by_rule.items()}
  # Equal where the paper has them equal.
  assert tuned['coupled768'] == tuned['in768_out768'] == tuned['in768_out128']
  assert tuned['in128_out128'] == tuned['in128_out768'] == tuned['in128_out3072'] == tuned['layers23to12']
  assert tuned['coupled128'] == tuned['in128_out128']
  assert len({each for name, each in tuned.items() if name.startswith('english') and 'coupled' not in name}) == 1
  # About half of the baseline is its embedding; a sixth of that is left of a narrow one.
  baseline = by_rule['coupled768'].by_part
  assert baseline['word embedding'] / sum(baseline.values()) == pytest.approx(0.52, abs=0.02)
  # By the paper's own counts: 192M and 192M; 193M and 192M; 469M and 192M; Table 13: 114M and 112M; 178M and 181M.
  for one, other, ratio, tolerance in (
    ('in768_out128', 'in128_out768', 1, 0.01),
    ('layers23to12', 'in128_out768', 1.006, 0.02),
    ('in128_out3072', 'in128_out768', 2.43, 0.05),
    ('english_layers15to12', 'english_in128_out768', 1.018, 0.02),
    ('english_layers24to12', 'english_in128_out3072', 0.982, 0.03),
  ):
    assert trained[one] / trained[other] == pytest.approx(ratio, abs=tolerance)
  # 178M and 177M; 168M and 177M, by the rule 166.7M.
  fine_tuned = {name: each.fine_tuning / by_rule['coupled768'].fine_tuning for name, each in by_rule.items()}
  assert fine_tuned['layers23'] == pytest.approx(1.005, abs=0.01)
  assert fine_tuned['hidden1024'] == pytest.approx(0.939, abs=0.03)


@pytest.mark.parametrize('last', SCALES)
def test_a_scale_after_another_leaves_nothing_of_it(last):
  row, scale = 'gin/experiments/table6/hidden1024.gin', f'gin/scales/{last}.gin'
  for first in SCALES:
    assert configured(row, f'gin/scales/{first}.gin', scale) == configured(row, scale)


def test_one_number_on_the_command_line_changes_all_that_refers_to_it():
  config = configured(*files(3, 'in768_out128', 'mini'), bindings=('HIDDEN=96', 'FEED_FORWARD=384'))
  assert config.model.hidden_size == config.model.input_embedding_size == 96
  assert config.model.output_embedding_size == 24
  assert configuration.bound(RemBertConfig)['hidden_size'] == 96


@pytest.mark.parametrize(
  ('gin_files', 'binding', 'message', 'fix'),
  [
    (files(4, 'in128_out128'), 'HIDEN=96', 'uses the macro HIDEN', 'did you mean HIDDEN?'),
    (files(4, 'in128_out128'), 'WIDE=96', 'uses the macro WIDE', ''),
    (files(4, 'in128_out128'), 'train.steps=%STEP', '%STEP is not defined', '--gin.STEP='),
    (['gin/pretrain_smoke.gin'], 'HIDDEN=96', 'uses the macro HIDDEN', '--gin.NAME.FIELD'),
    (['gin/pretrain_large.gin', 'gin/scales/mini.gin'], 'train.steps=1', 'the macros of this scale', 'gin/experiments'),
    (
      ['gin/finetune_xnli.gin', 'gin/scales/mini.gin'],
      'train.steps=1',
      'the macros of this scale',
      'gin/scales/finetuning',
    ),
  ],
)
def test_a_number_that_would_change_nothing_is_refused(gin_files, binding, message, fix):
  with pytest.raises(UsageError) as error:
    configuration.load(gin_files, [binding])
  assert message in str(error.value)
  assert fix in str(error.value)


@pytest.mark.parametrize(
  ('gin_files', 'name'),
  [
    (files(4, 'in128_out3072'), 'in128_out3072'),
    ([*files(4, 'in128_out3072', 'mini'), 'gin/hardware/cpu.gin'], 'in128_out3072_mini'),
    (['gin/finetune_xnli.gin', 'gin/scales/finetuning/small.gin'], 'finetune_xnli_small'),
    (['gin/pretrain_large.gin', 'gin/hardware/v4_64.gin'], 'pretrain_large'),
    (['gin/pretrain_base.gin', 'gin/models/in128_out3072.gin'], 'in128_out3072'),
    (['gin/hardware/cpu.gin'], 'cpu'),
  ],
)
def test_a_run_is_named_after_what_it_runs_and_its_scale_and_not_on_what(gin_files, name):
  assert main.run_name(gin_files) == name


# --- fine-tuning -------------------------------------------------------------


@pytest.mark.parametrize('scale', SCALES)
@pytest.mark.parametrize('task', ['xnli', 'panx', 'squad', 'tydiqa'])
def test_fine_tuning_of_a_scale_fits_its_models(task, scale, root):
  configuration.load([f'gin/finetune_{task}.gin', f'gin/scales/finetuning/{scale}.gin'], [])
  train, options = configuration.build(TrainConfig), configuration.build(FinetuneOptions)
  assert train.sequence_length <= int(macros(root, scale)['POSITIONS'])
  assert (train.batch_size, options.epochs) == (32, 3)  # Table 10
  assert (options.max_examples is None) == (scale == 'full')
  xtreme_config = configuration.build(XtremeConfig)
  room = train.sequence_length - xtreme_config.max_query_length - 3
  assert task in ('xnli', 'panx') or xtreme_config.doc_stride <= room, 'windows would leave gaps'
