"""The model card of an export: what it is, what it was trained on, how well it does, how to use it."""

import json
import math
import re

import rembert
from rembert.checkpoint.load import SavedModel
from rembert.data.masking import MaskingConfig
from rembert.model.parameter_count import count_parameters
from rembert.tracking.metric_writers import read_jsonl

_PIPELINES = {
  None: 'feature-extraction',
  'mlm': 'fill-mask',
  'classification': 'text-classification',
  'tagging': 'token-classification',
  'qa': 'question-answering',
}
_CLASSES = {
  None: 'AutoModel',
  'mlm': 'AutoModelForMaskedLM',
  'classification': 'AutoModelForSequenceClassification',
  'tagging': 'AutoModelForTokenClassification',
  'qa': 'AutoModelForQuestionAnswering',
  'multiple_choice': 'AutoModelForMultipleChoice',
}


def model_card(saved: SavedModel, head: str | None, *, name: str) -> str:
  """Markdown with the metadata block of Hugging Face; only facts that the checkpoint and its run hold."""
  rates = {key.removeprefix('rate of '): rate for key, rate in saved.meta.items() if key.startswith('rate of ')}
  sections = [
    _metadata(head, sorted(rates)),
    f'# {name}\n\n'
    'A RemBERT encoder: input and output embeddings are decoupled, so that a wide output embedding helps pre-training '
    'and costs fine-tuning nothing ([Chung et al., 2021](https://arxiv.org/abs/2010.12821)). '
    f'Trained and exported by rembert {rembert.__version__}.',
    _usage(saved, head, name),
    _architecture(saved),
    _training(saved, rates),
    _evaluation(saved),
  ]
  return '\n\n'.join(section for section in sections if section) + '\n'


def _metadata(head: str | None, languages: list[str]) -> str:
  codes = [code for code in languages if re.fullmatch(r'[a-z]{2,3}', code)]
  lines = ['---', 'library_name: transformers', *(['language:'] if codes else [])]
  lines += [f'- {json.dumps(code)}' for code in codes]  # quoted: `no` would be a boolean
  if head in _PIPELINES:
    lines.append(f'pipeline_tag: {_PIPELINES[head]}')
  return '\n'.join([*lines, 'tags:', '- rembert', '---'])


def _usage(saved: SavedModel, head: str | None, name: str) -> str:
  model = f"{_CLASSES[head]}.from_pretrained('{name}')"
  if head == 'mlm':
    code = f"from transformers import pipeline\n\nfill = pipeline('fill-mask', '{name}')\nfill('… [MASK] …')"
  else:
    code = (
      f'from transformers import AutoTokenizer, {_CLASSES[head]}\n\n'
      f"tokenizer = AutoTokenizer.from_pretrained('{name}')\nmodel = {model}"
    )
  return f'## Use\n\n```python\n{code}\n```'


def _architecture(saved: SavedModel) -> str:
  config, counts = saved.config, count_parameters(saved.config)
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
  return '## Architecture\n\n' + _table(('', ''), list(rows.items()))


def _training(saved: SavedModel, rates: dict[str, float]) -> str:
  meta, rows = saved.meta, {}
  if 'converted_from' in meta:
    rows['converted from'] = f'`{meta["converted_from"]}`'
  if 'train.batch_size' in meta:
    tokens = saved.step * meta['train.batch_size'] * meta['train.sequence_length']
    rows['steps'] = f'{saved.step:,} of {meta["train.batch_size"]} rows × {meta["train.sequence_length"]} tokens'
    rows['tokens'] = f'{tokens:.3g}'
    rows['seed'] = f'{meta["train.seed"]}'
    fields = {name.removeprefix('masking.'): value for name, value in meta.items() if name.startswith('masking.')}
    if fields:
      rows['masking'] = f'{fields["rate"]:.0%} of the pieces, {MaskingConfig(**fields).manner}'
  if 'xtreme.task' in meta:
    rows['task'] = f'{meta["xtreme.task"]}, learned in {meta["xtreme.train_language"]}'
    rows['began with'] = f'`{meta["train.init_from"]}`' if meta['train.init_from'] else 'nothing: untrained'
    rows['learning rate'] = f'{meta["optimizer.learning_rate"]:g}'
    rows |= {f'{name} on dev': f'{score:.1f}' for name, score in meta.get('dev', {}).items()}
  text = '## Training\n\n' + _table(('', ''), list(rows.items())) if rows else ''
  if rates:
    drawn = sorted(rates.items(), key=lambda pair: -pair[1])
    text += '\n\nShare of each language in the draw:\n\n'
    text += ' · '.join(f'{language} {rate:.2%}' for language, rate in drawn)
  return text


def _evaluation(saved: SavedModel) -> str:
  if 'xtreme.task' in saved.meta:
    return _judged(saved)
  rows = read_jsonl(saved.workdir / 'metrics.jsonl')
  rows = [row for row in rows if 'eval/loss' in row and row['step'] <= saved.step]
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
    lines.append(('frequency alone', f'{last["eval/unigram_entropy"]:.3f}', ''))
  return (
    f'## Held-out text\n\nMasked pieces after {last["step"]:,} steps; perplexity {math.exp(last["eval/loss"]):.1f}.\n\n'
    + _table(('', 'loss (nats)', 'accuracy'), lines)
  )


def _judged(saved: SavedModel) -> str:
  """Scores by language, of the run that the parameters are of, or are the best of."""
  files = (workdir / 'results.json' for workdir in (saved.workdir, saved.workdir.parent))
  found = [json.loads(file.read_text()) for file in files if file.exists()]
  if not found or found[0].get('step') != saved.step:
    return ''
  sections = []
  for task, by_language in found[0]['tasks'].items():
    scored = {language: entry['scores'] for language, entry in by_language.items() if entry['scores']}
    names = list(next(iter(scored.values()), ()))
    rows = [(language, *(f'{scores[name]:.1f}' for name in names)) for language, scores in scored.items()]
    if rows:
      rows.append(('mean', *(f'{found[0]["mean"][task][name]:.1f}' for name in names)))
      sections.append(f'## {task}, {found[0]["split"]}\n\n' + _table(('', *names), rows))
  return '\n\n'.join(sections)


def _table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
  rule = '|---|' + '|'.join(['--:' if columns[1] else '---'] * (len(columns) - 1)) + '|'
  line = lambda cells: '| ' + ' | '.join(cells) + ' |'
  return '\n'.join([line(columns), rule, *map(line, rows)])
