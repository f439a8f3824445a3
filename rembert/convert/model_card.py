"""The model card of an export: what it is, what it was trained on, how well it does, how to use it."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

import huggingface_hub

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
  rates = {key.removeprefix('rate of '): rate for key, rate in source.meta.items() if key.startswith('rate of ')}
  sections = [
    _metadata(source, head, rates, name),
    f'# {name}\n\n'
    'A RemBERT encoder: input and output embeddings are decoupled, so that a wide output embedding helps pre-training '
    'and costs fine-tuning nothing ([Chung et al., 2021](https://arxiv.org/abs/2010.12821)). '
    f'Trained and exported by rembert {rembert.__version__}.',
    _usage(head, name),
    _architecture(source),
    _training(source, rates),
    _evaluation(source),
  ]
  return '\n\n'.join(section for section in sections if section) + '\n'


def _metadata(source: Source, head: str | None, rates: Mapping[str, float], name: str) -> str:
  """The block of YAML that the Hub reads."""
  results, pipeline = _results(source), _CLASSES[head][1]
  scored = [
    (task, language, metric, score)
    for task, by_language in results.get('tasks', {}).items()
    for language, entry in by_language.items()
    for metric, score in (entry['scores'] or {}).items()
  ]
  names = {*rates, source.meta.get('xtreme.train_language', ''), *(language for _, language, _, _ in scored)}
  data = huggingface_hub.ModelCardData(
    language=sorted(code for code in names if re.fullmatch(r'[a-z]{2,3}', code)) or None,
    library_name='transformers',
    pipeline_tag=pipeline or None,
    tags=['rembert', *results.get('tasks', {})],
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
  return f'---\n{data.to_yaml()}\n---'


def _usage(head: str | None, name: str) -> str:
  if head == 'mlm':
    code = f"from transformers import pipeline\n\nfill = pipeline('fill-mask', '{name}')\nfill('… [MASK] …')"
  else:
    cls, _ = _CLASSES[head]
    code = (
      f'from transformers import AutoTokenizer, {cls}\n\n'
      f"tokenizer = AutoTokenizer.from_pretrained('{name}')\nmodel = {cls}.from_pretrained('{name}')"
    )
  return f'## Use\n\n```python\n{code}\n```'


def _architecture(source: Source) -> str:
  config, counts = source.config, count_parameters(source.config)
  rows = {
    'layers': f'{config.num_hidden_layers} × {config.hidden_size}, {config.num_attention_heads} heads, '
    f'feed-forward {config.intermediate_size}, {config.hidden_act}',
    'embeddings': f'{config.input_embedding_size} in, {config.output_embedding_size} out'
    + (' (tied)' if config.tie_word_embeddings else ''),
    'vocabulary': f'{config.vocab_size:,}',
    'positions': f'{config.max_position_embeddings}',
    'parameters in pre-training': f'{counts.pre_training:,}',
    'parameters in fine-tuning': f'{counts.fine_tuning:,}',
  }
  return '## Architecture\n\n' + _table(('', ''), rows.items())


def _training(source: Source, rates: dict[str, float]) -> str:
  meta, rows = source.meta, {}
  if 'converted_from' in meta:
    rows['converted from'] = f'`{meta["converted_from"]}`'
  if 'train.batch_size' in meta:
    tokens = source.step * meta['train.batch_size'] * meta['train.sequence_length']
    rows['steps'] = f'{source.step:,} of {meta["train.batch_size"]} sequences × {meta["train.sequence_length"]} tokens'
    rows['tokens'] = f'{tokens:.3g}'
    rows['seed'] = f'{meta["train.seed"]}'
    if 'masking.rate' in meta:
      rows['masking'] = f'{meta["masking.rate"]:.0%} of the tokens'
  if _TASKS & meta.keys():
    rows['task'] = meta.get('finetune.mixture') or f'{meta["xtreme.task"]}, trained on {meta["xtreme.train_language"]}'
    if source.labels:
      rows['labels'] = ', '.join(f'`{label}`' for label in source.labels)
    rows['initialised from'] = f'`{meta["train.init_from"]}`' if meta['train.init_from'] else 'random parameters'
    rows['learning rate'] = f'{meta["optimizer.learning_rate"]:g}'
    rows |= {f'{name} on dev': f'{score:.1f}' for name, score in meta.get('dev', {}).items()}
  text = '## Training\n\n' + _table(('', ''), rows.items()) if rows else ''
  if rates:
    drawn = sorted(rates.items(), key=lambda pair: -pair[1])
    text += '\n\nSampling rates of languages:\n\n'
    text += ' · '.join(f'{language} {rate:.2%}' for language, rate in drawn)
  return text


def _evaluation(source: Source) -> str:
  if _TASKS & source.meta.keys():
    return _task_scores(source)
  if not source.meta:  # a model from elsewhere
    return ''
  rows = read_jsonl(source.workdir / 'metrics.jsonl')
  rows = [row for row in rows if 'eval/loss' in row and row['step'] <= source.step]
  if not rows:
    return ''
  last, prefix = rows[-1], 'eval/loss/'
  lines = [
    (key.removeprefix(prefix), f'{loss:.3f}', f'{last["eval/accuracy/" + key.removeprefix(prefix)]:.1%}')
    for key, loss in last.items()
    if key.startswith(prefix)
  ]
  lines.append(('all', f'{last["eval/loss"]:.3f}', f'{last["eval/accuracy"]:.1%}'))
  if 'eval/unigram_entropy' in last:
    lines.append(('unigram baseline', f'{last["eval/unigram_entropy"]:.3f}', ''))
  return (
    f'## Eval set\n\nMasked tokens after {last["step"]:,} steps; perplexity {math.exp(last["eval/loss"]):.1f}.\n\n'
    + _table(('', 'loss (nats)', 'accuracy'), lines)
  )


def _results(source: Source) -> dict:
  """`results.json` of the run that the parameters are of, or are the best of; {} if it has none of their step."""
  if not _TASKS & source.meta.keys():
    return {}
  files = (workdir / 'results.json' for workdir in (source.workdir, source.workdir.parent))
  found: list[dict] = [json.loads(file.read_text()) for file in files if file.exists()]
  return found[0] if found and found[0].get('step') == source.step else {}


def _task_scores(source: Source) -> str:
  """Scores by language."""
  results = _results(source)
  sections = []
  for task, by_language in results.get('tasks', {}).items():
    scored = {language: entry['scores'] for language, entry in by_language.items() if entry['scores']}
    names = list(next(iter(scored.values()), ()))
    rows = [(language, *(f'{scores[name]:.1f}' for name in names)) for language, scores in scored.items()]
    if rows:
      rows.append(('mean', *(f'{results["mean"][task][name]:.1f}' for name in names)))
      sections.append(f'## {task}, {results["split"]}\n\n' + _table(('', *names), rows))
  return '\n\n'.join(sections)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  rule = '|---|' + '|'.join(['--:' if columns[1] else '---'] * (len(columns) - 1)) + '|'
  line = lambda cells: '| ' + ' | '.join(cells) + ' |'
  return '\n'.join([line(columns), rule, *map(line, rows)])
