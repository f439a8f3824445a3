"""A trained model looked into: one of the analyses of `rembert/analysis`, on one host.

The workdir gets `analysis.json` ({"analysis", "model", "model_name", "facts", "results"}, plain numbers and lists; what
`results` holds is said at the head of the analysis' file) and a picture of the analysis' name.
"""

import json
import math
from collections.abc import Callable
from typing import Any

from etils import epath

import rembert
from rembert import configuration
from rembert.analysis import (
  edge_probing,
  fertility,
  layer_retrieval,
  masked_accuracy,
  scaling,
  spectra,
  word_similarity,
)
from rembert.analysis.config import WITHOUT_MODEL, AnalyzeConfig
from rembert.analysis.context import AnalysisConfig, AnalysisContext, AnalysisResult
from rembert.errors import UsageError
from rembert.files import write_errors, write_whole
from rembert.jobs import workdir as workdirs
from rembert.jobs.predict import text_encoder
from rembert.jobs.pretrain_data import open_data
from rembert.jobs.training_run import build_config
from rembert.plotting.analyses import PLOTS
from rembert.runtime.signals import StopSignal
from rembert.tracking.console import Console

RESULT = 'analysis.json'
_RUN: dict[str, Callable[[AnalysisContext], AnalysisResult]] = {
  'masked_accuracy': masked_accuracy.run,
  'layer_retrieval': layer_retrieval.run,
  'word_similarity': word_similarity.run,
  'edge_probing': edge_probing.run,
  'spectra': spectra.run,
  'fertility': fertility.run,
  'scaling': scaling.run,
}


def configured() -> AnalysisConfig:
  """The configuration that gin has been told."""
  return build_config(AnalysisConfig)


def dry_run(config: AnalysisConfig, workdir: epath.Path) -> int:
  """Says what would be analysed; opens neither model nor files."""
  check_model(config.analyze)
  workdirs.check(workdir)
  set_to = {field: str(value) for field, value in configuration.bound(AnalyzeConfig).items()}
  console = Console()
  console.facts(f'{config.analyze.what}', set_to)
  console.say('Not looked at: the model and the files that are named.')
  return 0


def check_model(analyze: AnalyzeConfig) -> None:
  """Raises UsageError if a model is needed and none is named."""
  if analyze.model is None and analyze.what not in WITHOUT_MODEL:
    raise UsageError(
      'which model?', where='analyze.model', fix='--gin.analyze.model=WORKDIR, or a folder of Hugging Face'
    )


def run(config: AnalysisConfig, workdir: epath.Path, stop: StopSignal, console: Console | None = None) -> int:
  """Analyses, shows a table, and writes. A repeated command begins anew: no analysis takes long beside training."""
  analyze, console = config.analyze, console or Console()
  check_model(analyze)
  workdirs.prepare(workdir)
  with workdirs.locked(workdir, console.say):
    configuration.save(workdir)
    name = analyze.model_name or model_name(analyze.model)
    console.say(f'rembert {rembert.__version__} · {analyze.what} of {analyze.model or analyze.points or analyze.text}')
    context = AnalysisContext(config, workdir, console, stop, open_data=open_data, text_encoder=text_encoder)
    result = _RUN[analyze.what](context)
    content = {
      'analysis': analyze.what,
      'model': analyze.model,
      'model_name': name,
      'facts': {'seed': analyze.seed, **result.facts},
      'results': result.results,
    }
    content, picture = plain(content), workdir / f'{analyze.what}.png'
    with write_errors('the analysis', workdir / RESULT):
      write_whole(workdir / RESULT, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + '\n')
      write_whole(picture, PLOTS[analyze.what]({name: content['results']}))
  for table in result.tables:
    console.table(table.title, table.columns, table.rows)
  for remark in result.remarks:
    console.say(remark)
  console.facts('Done', {'results': f'{workdir / RESULT}', 'picture': f'{picture}'})
  return 0


def model_name(path: str | None) -> str:
  """The folder of a model: of a checkpoint, that of its workdir."""
  if path is None:
    return 'points'
  folder = epath.Path(path)
  if folder.parent.name == 'checkpoints':
    folder = folder.parent.parent
  return folder.name or str(path)


def plain(content: Any) -> Any:
  """As JSON has it: tuples as lists, numbers of NumPy as Python's, and what is not finite as null."""
  if isinstance(content, dict):
    return {str(key): plain(value) for key, value in content.items()}
  if isinstance(content, list | tuple):
    return [plain(value) for value in content]
  if hasattr(content, 'item') and not isinstance(content, str):
    content = content.item()
  if isinstance(content, float) and not math.isfinite(content):
    return None
  return str(content) if isinstance(content, epath.Path) else content
