import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from docs.tools import replication
from docs.tools.rendering import with_tables
from docs.tools.replication import CONFIRMED, CONTRADICTED, NOT_DECIDED, Claim, Contrast
from rembert import paper

LEVEL = 0.95
TASKS = {'udpos': ['de', 'en', 'nl'], 'panx': ['de', 'en', 'sw']}


def lines(model, seeds, score, *, noise=0.1, last_layer=1.0):
  """Lines of scores.csv of a model whose every score is `score`, plus noise that depends on the seed."""
  found, random = {}, np.random.default_rng(sum(map(ord, model)))
  add = lambda seed, finetune_seed, task, metric, languages, value: found.update(
    {(model, seed, finetune_seed, task, metric): {code: value + noise * random.normal() for code in languages}}
  )
  for seed in seeds:
    add(seed, -1, 'eval', 'loss', ['all', 'de', 'en'], 5.0)
    add(seed, -1, 'probing', 'f1', TASKS['udpos'], score)
    for layer, value in enumerate([0.5, 1.5, 4.0, last_layer]):
      add(seed, -1, 'retrieval', f'layer {layer}', ['de', 'sw'], value)
    for task, languages in TASKS.items():
      for finetune_seed in replication.FINETUNE_SEEDS:
        add(seed, finetune_seed, task, 'f1', languages, score)
  return found


def table_of(*groups):
  found = {key: values for group in groups for key, values in group.items()}
  index = pd.MultiIndex.from_tuples(found, names=replication.KEYS)
  return pd.DataFrame(list(found.values()), index=index, columns=['all', *replication.LANGUAGES], dtype=float)


def claim(better, worse, **options):
  return Claim('…', (Contrast(better, worse, 'Table 6', 2.0),), **options)


# --- intervals --------------------------------------------------------------------------------------------------------


def test_with_languages_that_do_not_differ_the_interval_is_students_over_seeds():
  of_seeds = np.array([0.4, -0.1, 0.9, 0.3])
  found = replication.interval(np.repeat(of_seeds[:, None], 5, axis=1), LEVEL)
  low, high = stats.t.interval(LEVEL, 3, of_seeds.mean(), stats.sem(of_seeds))
  assert (found.mean, found.low, found.high) == pytest.approx((of_seeds.mean(), low, high))
  transposed = replication.interval(np.repeat(of_seeds[None], 5, axis=0), LEVEL)
  assert (transposed.low, transposed.high) == pytest.approx((low, high))


def test_the_interval_holds_the_true_difference_as_often_as_it_says():
  """Seeds, languages and their interaction vary; within three standard errors, and not too wide."""
  random, held, draws = np.random.default_rng(0), 0, 2000
  for _ in range(draws):
    differences = random.normal(size=(5, 1)) + random.normal(size=(1, 12)) + random.normal(size=(5, 12))
    found = replication.interval(0.7 + differences, LEVEL)
    held += found.low <= 0.7 <= found.high
  assert abs(held / draws - LEVEL) < 3 * (LEVEL * (1 - LEVEL) / draws) ** 0.5 + 0.005


def test_the_seeds_that_are_needed_find_the_effect_four_times_of_five():
  """The power at that number of seeds and at half of it, by simulation with one language's worth of noise."""
  pilot = np.repeat(np.random.default_rng(1).normal(size=(40, 1)), 4, axis=1)
  needed = int(replication.interval(pilot, LEVEL, effect=1.0).seeds_needed)
  spread, random = pilot[:, 0].std(ddof=1), np.random.default_rng(2)
  power = lambda seeds: np.mean(
    stats.ttest_1samp(1.0 + spread * random.normal(size=(4000, seeds)), 0, axis=1).pvalue < 1 - LEVEL
  )
  assert 0.78 < power(needed) < 0.9
  assert power(needed // 2) < 0.6


def test_no_number_of_seeds_makes_up_for_languages_that_differ_more_than_the_effect():
  differences = np.repeat(np.array([[-20.0, 0.0, 20.0]]), 5, axis=0)
  assert replication.interval(differences, LEVEL, effect=1.0).seeds_needed == np.inf


# --- claims -----------------------------------------------------------------------------------------------------------


def test_claims_are_between_rows_of_the_papers_tables_and_have_its_sign():
  for each in replication.CLAIMS:
    for contrast in each.contrasts:
      assert contrast.printed > 0
      if contrast.source.startswith('Table'):
        rows = {row.name for row in paper.TABLES[int(contrast.source.removeprefix('Table '))]}
        assert {contrast.better, contrast.worse} <= rows & replication.MODELS.keys()


def test_a_claim_is_decided_by_intervals_of_all_first_seeds():
  five = range(5)
  frame = table_of(lines('coupled768', five, 20.0), lines('layers23', five, 23.0), lines('hidden1024', range(4), 30.0))
  assert replication.verdict(frame, claim('layers23', 'coupled768')) == CONFIRMED
  assert replication.verdict(frame, claim('coupled768', 'layers23')) == CONTRADICTED
  assert replication.verdict(frame, claim('hidden1024', 'coupled768')) == NOT_DECIDED  # four seeds
  assert replication.verdict(frame, claim('in128_out128', 'coupled768')) == NOT_DECIDED


def test_no_difference_decides_only_that_nothing_is_lost():
  frame = table_of(lines('coupled768', range(5), 20.0), lines('in768_out768', range(5), 20.0, noise=0.2))
  assert replication.verdict(frame, claim('in768_out768', 'coupled768')) == NOT_DECIDED
  assert replication.verdict(frame, claim('in768_out768', 'coupled768', margin=1.0)) == CONFIRMED
  frame = table_of(lines('coupled768', range(5), 20.0), lines('in768_out768', range(5), 17.0))
  assert replication.verdict(frame, claim('in768_out768', 'coupled768', margin=1.0)) == CONTRADICTED


def test_tasks_that_disagree_decide_nothing():
  better, worse = lines('layers23', range(5), 23.0), lines('coupled768', range(5), 20.0)
  turned = {key: {code: 17.0 for code in values} if key[3] == 'panx' else values for key, values in better.items()}
  assert replication.verdict(table_of(turned, worse), claim('layers23', 'coupled768')) == NOT_DECIDED


def test_a_decline_is_the_last_layer_less_the_best_without_the_embeddings():
  frame = table_of(lines('in128_out128', range(3), 20.0, noise=0, last_layer=1.0))
  assert replication.measured(frame, 'in128_out128', 'decline').to_numpy() == pytest.approx(np.full((3, 2), -3.0))
  assert replication.measured(frame, 'in128_out128', 'retrieval').to_numpy() == pytest.approx(np.full((3, 2), 4.0))


# --- runs -------------------------------------------------------------------------------------------------------------


SWEEP = {'name': 'sweep', 'scale': 'micro', 'asked': [], 'code': {'version': '0.1', 'commit': None, 'dirty': None}}


def write(file, content):
  file.parent.mkdir(parents=True, exist_ok=True)
  file.write_text(json.dumps(content) + '\n')


@pytest.fixture
def sweep(tmp_path):
  """A sweep of one model with two seeds, of which the second has no probing yet."""
  entry = {'name': 'coupled768', 'rows': [[2, 'coupled768']], 'pretrained': [], 'learned': [], 'analyses': []}
  for seed in (0, 1):
    write(tmp_path / f'pretrained_{seed}' / 'metrics.jsonl', {'step': 8, 'eval/loss': 5.5, 'eval/loss/de': 5.25})
    entry['pretrained'].append({'seed': seed, 'workdir': f'pretrained_{seed}'})
    for task in TASKS:
      for finetune_seed in replication.FINETUNE_SEEDS:
        workdir = f'{task}_{seed}_{finetune_seed}'
        languages = {'de': {'scores': {'f1': 20 + finetune_seed, 'precision': 99.0}}}
        write(tmp_path / workdir / 'results.json', {'task': task, 'tasks': {task: languages}})
        made = {'pretrain_seed': seed, 'seed': finetune_seed, 'task': task, 'evaluated': [task]}
        entry['learned'].append(made | {'variant': '', 'learning_rate': None, 'workdir': workdir})
    retrieval = {'layers': [0, 1], 'pairs': {'de-en': {'accuracy': [1.0, 2.0]}}}
    probing = {'encoders': {'model': {'tests': {'de': {'micro_f1': 60.0}}, 'expected_layer': 1.5}}}
    for what, results in {'layer_retrieval': retrieval, 'edge_probing': probing if seed == 0 else None}.items():
      entry['analyses'].append({'pretrain_seed': seed, 'what': what, 'workdir': f'{what}_{seed}'})
      if results:
        write(tmp_path / f'{what}_{seed}' / 'analysis.json', {'analysis': what, 'results': results})
  write(tmp_path / 'sweep.json', SWEEP | {'models': [entry]})
  return tmp_path


def test_a_seed_is_collected_when_all_its_runs_are_done(sweep):
  found = replication.collect(sweep)
  assert set(found.index.get_level_values('pretrain_seed')) == {0}
  assert found.loc[('coupled768', 0, -1, 'eval', 'loss'), ['all', 'de']].tolist() == [5.5, 5.25]
  assert found.loc[('coupled768', 0, 2, 'panx', 'f1'), 'de'] == 22.0
  assert found.loc[('coupled768', 0, -1, 'retrieval', 'layer 1'), 'de'] == 2.0
  assert found.loc[('coupled768', 0, -1, 'probing', 'expected layer'), 'all'] == 1.5
  assert 'precision' not in found.index.get_level_values('metric')


def test_scores_are_kept_as_they_are_collected(sweep):
  found = replication.collect(sweep)
  text = replication.write_scores(found)
  assert replication.write_scores(replication.read_scores(text)) == text


def learning_rates(*models):
  losses = {(model, rate): abs(rate - 2e-3) for model in models for rate in (1e-3, 2e-3, 4e-3)}
  return pd.Series(losses, dtype=float).rename_axis(['model', 'learning_rate'])


def test_a_model_is_trained_with_the_learning_rate_of_its_lowest_eval_loss(tmp_path):
  entries = []
  for rate, loss in {'1e-3': 6.0, '2e-3': 5.5, '4e-3': 7.0}.items():
    write(tmp_path / rate / 'metrics.jsonl', {'step': 8, 'eval/loss': loss})
    pretrained = [{'seed': 1000, 'workdir': rate}]
    entry = {'name': f'layers23-LEARNING_RATE={rate}', 'rows': [], 'pretrained': pretrained}
    entries.append(entry | {'learned': [], 'analyses': []})
  write(tmp_path / 'sweep.json', SWEEP | {'models': entries})
  losses = replication.tuned(tmp_path)
  assert replication.best_learning_rates(losses) == {'layers23': 2e-3}
  missing = replication.missing('learning_rates', table_of(lines('layers23', [0], 20.0)), losses)
  assert len(missing) == 8
  assert missing[0] == 'gin/experiments/table4/in128_out3072.gin 0.001,0.002,0.004'


@pytest.mark.parametrize(
  ('tried', 'best', 'next_rate'),
  [
    ((1e-3, 2e-3, 4e-3), 4e-3, ' 0.008'),
    ((4e-3, 8e-3, 1.6e-2), 1.6e-2, None),
    ((1e-3, 2e-3, 4e-3), 1e-3, ' 0.0005'),
    ((2.5e-4, 5e-4, 1e-3), 2.5e-4, None),
  ],
)
def test_a_rate_beyond_those_tried_follows_while_one_at_their_end_is_the_best(tried, best, next_rate):
  rates = learning_rates(*replication.MODELS)
  of_layers23 = pd.Series({('layers23', rate): abs(rate - best) for rate in tried}).rename_axis(rates.index.names)
  losses = pd.concat([rates.drop('layers23', level='model'), of_layers23])
  expected = [f'gin/experiments/table6/layers23.gin{next_rate}'] if next_rate else []
  assert replication.missing('learning_rates', table_of(lines('layers23', [0], 20.0)), losses) == expected


def test_models_of_claims_with_few_models_come_first():
  order = replication.models_of(replication.CLAIMS)
  assert sorted(order) == sorted(replication.MODELS)
  assert order[:2] == ['in128_out3072', 'in128_out128']


def test_seeds_that_have_no_scores_are_missing_and_later_ones_are_for_open_claims():
  rates, models = learning_rates(*replication.MODELS), {name: 20.0 for name in replication.MODELS}
  frame = table_of(*(lines(model, range(5), score) for model, score in models.items() if model != 'layers23'))
  assert replication.missing('first', frame, rates) == [
    f'gin/experiments/table6/layers23.gin 0.002 {seed}' for seed in range(5)
  ]
  assert replication.missing('later', frame, rates) == []
  models |= {'layers23': 26.0, 'in128_out768': 23.0, 'in128_out3072': 23.0, 'in768_out768': 20.2}
  frame = table_of(*(lines(model, range(5), score) for model, score in models.items()))
  assert [replication.verdict(frame, each) for each in replication.CLAIMS] == [CONFIRMED] * 3 + [NOT_DECIDED, CONFIRMED]
  later = replication.missing('later', frame, rates)
  assert list(dict.fromkeys(line.split()[0] for line in later)) == [
    f'gin/experiments/table4/{name}.gin' for name in ('in128_out3072', 'in128_out128')
  ]
  assert len(later) == 2 * len(replication.LATER_SEEDS)


def test_scores_that_are_collected_again_replace_those_of_before(sweep):
  found = replication.collect(sweep)
  assert replication.with_new(found, found + 1, 2).equals((found + 1).sort_index())
  other = table_of(lines('layers23', [0], 20.0))
  assert len(replication.with_new(other, found, 2)) == len(other) + len(found)


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_has_the_tables_of_the_scores_that_are_kept():
  text = replication.PAGE.read_text()
  kept = replication.read_scores(replication.SCORES.read_text())
  assert text == with_tables(text, replication.page_tables(kept))
  for plot in (replication.CLAIMS_PLOT, replication.LAYERS_PLOT):
    assert plot.stat().st_size > 10_000


def test_tables_and_plots_of_a_study_that_is_half_done():
  frame = table_of(lines('coupled768', range(2), 20.0), lines('layers23', range(1), 23.0))
  first, second = replication.models_table(frame).splitlines()[2:]
  assert first.startswith('| `coupled768` | 0.99M | 0.98M | 2 | 5.006 ± 0.095 |')
  assert '±' in first
  assert '±' not in second
  claims = replication.claims_table(frame)
  assert claims.count(NOT_DECIDED) == len(replication.CLAIMS)
  assert '| — | — |' in claims
  for plot in (replication.plot_claims, replication.plot_layers):
    assert plot(frame).startswith(b'\x89PNG')
