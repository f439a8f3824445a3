"""The model card of an export, `model_card.md.j2`: what it is, its training, how well it does, how to use it."""

import json
import math
import re
from collections.abc import Mapping, Sequence

import huggingface_hub
import jinja2

import rembert
from rembert.convert.tensor_names import Source
from rembert.model.parameter_count import count_parameters
from rembert.tracking.metric_writers import read_jsonl

# In `meta` of a fine-tuned model.
_TASKS = {'xtreme.task', 'finetune.mixture'}
# Head to the class of transformers that loads it, and the name of its pipeline.
_CLASSES = {
  None: ('AutoModel', 'feature-extraction'),
  'mlm': ('AutoModelForMaskedLM', 'fill-mask'),
  'classification': ('AutoModelForSequenceClassification', 'text-classification'),
  'tagging': ('AutoModelForTokenClassification', 'token-classification'),
  'qa': ('AutoModelForQuestionAnswering', 'question-answering'),
  'multiple_choice': ('AutoModelForMultipleChoice', ''),
  'regression': ('AutoModelForSequenceClassification', 'text-classification'),
}


def model_card(source: Source, head: str | None, *, name: str) -> str:
  """Markdown with the metadata block of Hugging Face; only facts that the checkpoint and its run hold."""
  environment = jinja2.Environment(
    loader=jinja2.PackageLoader('rembert.convert', '.'),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
  )
  rates = {key.removeprefix('rate of '): rate for key, rate in source.meta.items() if key.startswith('rate of ')}
  is_finetuned = bool(_TASKS & source.meta.keys())
  results = _results(source) if is_finetuned else {}
  # By task and language, of the languages that have scores.
  scores = {
    task: {language: entry['scores'] for language, entry in by_language.items() if entry['scores']}
    for task, by_language in results.get('tasks', {}).items()
  }
  return environment.get_template('model_card.md.j2').render(
    metadata=_metadata(source, head, [*rates], name, results, scores),
    name=name,
    head=head,
    cls=_CLASSES[head][0],
    version=rembert.__version__,
    source=source,
    config=source.config,
    counts=count_parameters(source.config),
    meta=source.meta,
    rates=sorted(rates.items(), key=lambda pair: -pair[1]),
    is_finetuned=is_finetuned,
    results=results,
    scores=scores,
    held_out={} if is_finetuned else _held_out(source),
    perplexity=math.exp,
  )


def _metadata(
  source: Source, head: str | None, languages: Sequence[str], name: str, results: Mapping, scores: Mapping
) -> str:
  """The block of YAML that the Hub reads."""
  pipeline = _CLASSES[head][1]
  scored = [
    (task, language, metric, score)
    for task, by_language in scores.items()
    for language, of_language in by_language.items()
    for metric, score in of_language.items()
  ]
  names = {*languages, source.meta.get('xtreme.train_language', ''), *(language for _, language, _, _ in scored)}
  data = huggingface_hub.ModelCardData(
    language=sorted(code for code in names if re.fullmatch(r'[a-z]{2,3}', code)) or None,
    library_name='transformers',
    pipeline_tag=pipeline or None,
    tags=['rembert', *scores],
    metrics=list(dict.fromkeys(metric for _, _, metric, _ in scored)) or None,
    labels=list(source.labels) or None,
    model_name=name,
    eval_results=[
      huggingface_hub.EvalResult(
        task_type=pipeline or 'multiple-choice',
        dataset_type=task,
        dataset_name=f'{task} ({language})',
        dataset_config=language,
        dataset_split=results.get('split'),
        metric_type=metric,
        metric_value=score,
      )
      for task, language, metric, score in scored
    ]
    or None,
  )
  return data.to_yaml()


def _held_out(source: Source) -> Mapping[str, float]:
  """The last evaluation of a pre-training run up to the step of the checkpoint; {} if there is none."""
  rows = read_jsonl(source.workdir / 'metrics.jsonl') if source.meta else []  # without any it is from elsewhere
  return next((row for row in reversed(rows) if 'eval/loss' in row and row['step'] <= source.step), {})


def _results(source: Source) -> dict:
  """`results.json` of the run that the parameters are of, or are the best of; {} if it has none of their step."""
  files = (workdir / 'results.json' for workdir in (source.workdir, source.workdir.parent))
  found: list[dict] = [json.loads(file.read_text()) for file in files if file.exists()]
  return found[0] if found and found[0].get('step') == source.step else {}
