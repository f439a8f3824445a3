"""`scaling`: a file of sizes and scores, fitted."""

from rembert.analysis.scaling import read_points, results_of
from rembert.jobs.analyses.desk import Analysed, Desk, Table


def run(desk: Desk) -> Analysed:
  """See `rembert.analysis.scaling`."""
  analyze = desk.config.analyze
  analyze.require('points')
  points = read_points(analyze.points)
  with desk.task('fitting'):
    results = results_of(points, samples=analyze.samples, seed=analyze.seed)
  rows = []
  for name, fit in results['laws'].items():
    if fit is None:
      rows.append((name, 'too few sizes', '', '', ''))
      continue
    for letter, found in fit['parameters'].items():
      between = '–' if found['low'] is None else f'{found["low"]:.4g} to {found["high"]:.4g}'
      error = '–' if found['error'] is None else f'{found["error"]:.2g}'
      is_first = letter == 'a'
      aic = '–' if fit['aic'] is None else f'{fit["aic"]:.1f}'
      rows.append((f'{name} {letter}' if is_first else letter, f'{found["value"]:.4g}', error, between, aic * is_first))
  remarks = []
  if results['better']:
    remarks.append(f'the {results["better"]} law has the lower AIC')
  if all(row['deviation'] is None for row in results['points']):
    remarks.append('one run of each size: there is no bootstrap')
  facts = {'points': str(analyze.points), 'runs': len(points.x), 'sizes': len(results['points'])}
  table = Table('a + b · log₂ x, and a − b · x^(−c)', ('', 'value', 'error', '95 % of the bootstrap', 'AIC'), rows)
  return Analysed(results, facts, [table], remarks)
