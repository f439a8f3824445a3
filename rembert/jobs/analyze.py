"""Runs one of the analyses of `rembert/analysis` on a trained model, on one host.

Writes to the workdir `analysis.json` ({"analysis", "model", "model_name", "facts", "results"}; the docstring of each
analysis documents its `results`) and a plot named after the analysis.
"""

import importlib
import json
from typing import Any

from etils import epath

import rembert
from rembert import configuration
from rembert.analysis.config import WITHOUT_MODEL, AnalyzeConfig
from rembert.analysis.context import AnalysisConfig, AnalysisContext, AnalysisResult
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.jobs import workdir as workdirs
from rembert.jobs.config import build_config
from rembert.jobs.pretrain_data import open_data
from rembert.plotting.analyses import PLOTS
from rembert.runtime import xla
from rembert.runtime.signals import StopSignal
from rembert.tracking.console import Console

RESULT = 'analysis.json'


def configured() -> AnalysisConfig:
  """Builds the configuration from gin."""
  return build_config(AnalysisConfig)


def dry_run(config: AnalysisConfig, workdir: epath.Path) -> int:
  """Prints the options of the analysis, without opening the model or files."""
  _check_model(config.analyze)
  workdirs.check(workdir)
  console = Console()
  console.facts(config.analyze.what, {field: str(value) for field, value in configuration.bound(AnalyzeConfig).items()})
  console.say('Not checked: the model and the files.')
  return 0


def _check_model(analyze: AnalyzeConfig) -> None:
  if analyze.model is None and analyze.what not in WITHOUT_MODEL:
    raise UsageError(
      'analyze.model is not set',
      where='analyze.model',
      fix='--gin.analyze.model=WORKDIR, or a Hugging Face model directory or Hub id',
    )


def run(config: AnalysisConfig, workdir: epath.Path, stop: StopSignal) -> int:
  """Analyses, prints tables, and writes the results. Running it again starts from scratch (minutes)."""
  analyze, console = config.analyze, Console()
  _check_model(analyze)
  if not_kept := xla.enable_compilation_cache(config.hardware.compile_cache):
    console.say(not_kept)
  with workdirs.locked(workdir, console.say):
    configuration.save(workdir)
    console.say(f'rembert {rembert.__version__} · {analyze.what} of {analyze.model or analyze.text}')
    context = AnalysisContext(config, workdir, console, stop, open_data=open_data)
    result: AnalysisResult = importlib.import_module(f'rembert.analysis.{analyze.what}').run(context)
    content = plain(
      {
        'analysis': analyze.what,
        'model': analyze.model,
        'model_name': analyze.model_name or model_name(analyze.model),
        'facts': {'seed': analyze.seed, **result.facts},
        'results': result.results,
      }
    )
    picture = PLOTS[analyze.what](content['model_name'], content['results'])
    with write_errors('the analysis', workdir / RESULT):
      write_whole(workdir / RESULT, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + '\n')
      write_whole(workdir / f'{analyze.what}.png', picture)
  for table in result.tables:
    console.table(table.title, table.columns, table.rows)
  for remark in result.remarks:
    console.say(remark)
  console.facts('Done', {'results': f'{workdir / RESULT}', 'plot': f'{workdir / analyze.what}.png'})
  return 0


def model_name(path: str | None) -> str:
  """Name of the model's directory, or of the workdir of a checkpoint; `vocabulary` without a model."""
  if path is None:
    return 'vocabulary'
  folder = epath.Path(path)
  if folder.parent.name == 'checkpoints':
    folder = folder.parent.parent
  return folder.name or str(path)


def plain(content: Any) -> Any:
  """Converts values to JSON: tuples to lists, NumPy numbers to Python's, non-finite numbers to null."""
  text = json.dumps(content, default=lambda value: value.item() if hasattr(value, 'item') else str(value))
  return json.loads(text, parse_constant=lambda name: None)
