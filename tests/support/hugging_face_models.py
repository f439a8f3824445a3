"""Hugging Face's torch RemBERT with random weights, run on the cases of `hugging_face_cases`.

`make golden` runs this file and writes tests/golden again. Needs torch.
"""

import dataclasses

import numpy as np
import torch
import transformers
from hugging_face_cases import (
  CONFIGURATIONS,
  GOLDEN,
  GOLDEN_CASES,
  NUM_LABELS,
  Outputs,
  batch,
  golden_file,
  save_golden,
)

from rembert.model.config import RemBertConfig

_ACTIVATIONS = {'gelu': 'gelu', 'gelu_tanh': 'gelu_pytorch_tanh'}
_CLASSES = {
  'mlm': transformers.RemBertForMaskedLM,
  'classification': transformers.RemBertForSequenceClassification,
  'tagging': transformers.RemBertForTokenClassification,
  'qa': transformers.RemBertForQuestionAnswering,
  'multiple_choice': transformers.RemBertForMultipleChoice,
  'regression': transformers.RemBertForSequenceClassification,
}
# Of the heads that have none: a pooler to run on their last hidden states, where there is one to compare with.
_OWN_POOLER = ('classification', 'multiple_choice', 'regression')


def random_model(config: RemBertConfig, head: str) -> transformers.PreTrainedModel:
  """Their model with every weight random, biases and norms too."""
  fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  for ours in ('pad_vocab_to_multiple_of', 'always_project_embeddings'):
    del fields[ours]
  theirs = transformers.RemBertConfig(
    **{**fields, 'hidden_act': _ACTIVATIONS[config.hidden_act]},
    num_labels={'qa': 2, 'regression': 1}.get(head, NUM_LABELS),
  )
  model = _CLASSES[head](theirs).eval()
  random = np.random.default_rng(0)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      if 'LayerNorm.weight' in name:
        values = random.normal(1, 0.1, parameter.shape)
      elif name.endswith('bias'):
        values = random.normal(0, 0.1, parameter.shape)
      elif 'embeddings' in name:
        # Small, as in training: a wrong epsilon in the LayerNorm that follows would show.
        values = random.normal(0, 0.02, parameter.shape)
      else:
        values = random.normal(0, parameter.shape[1] ** -0.5, parameter.shape)
      parameter.copy_(torch.tensor(values))
    if not config.projects_embeddings:
      # They always project I to H; here the projection exists only where the two differ.
      projection = model.rembert.encoder.embedding_hidden_mapping_in
      projection.weight.copy_(torch.eye(config.hidden_size))
      projection.bias.zero_()
  return model


def run(model: transformers.PreTrainedModel, inputs: dict[str, np.ndarray], head: str) -> Outputs:
  """Their outputs and gradients."""
  tensors = {name: torch.tensor(value) for name, value in inputs.items() if name not in ('masked_positions', 'weights')}
  output = model(**tensors, output_hidden_states=True)
  output.loss.backward()
  numpy = lambda tensor: tensor.detach().numpy()
  pooled = None
  if head in _OWN_POOLER:
    flat = {name: tensors[name].reshape(-1, tensors[name].shape[-1]) for name in ('input_ids', 'attention_mask')}
    types = tensors['token_type_ids'].reshape(flat['input_ids'].shape)
    pooled = numpy(model.rembert(**flat, token_type_ids=types).pooler_output)
  logits = (
    np.stack([numpy(output.start_logits), numpy(output.end_logits)], axis=-1) if head == 'qa' else numpy(output.logits)
  )
  return Outputs(
    hidden_states=np.stack([numpy(states) for states in output.hidden_states]),
    pooled=pooled,
    logits=logits,
    loss=output.loss.item(),
    gradients={name: numpy(parameter.grad) for name, parameter in model.named_parameters()},
  )


def weights(model: transformers.PreTrainedModel) -> dict[str, np.ndarray]:
  """Their weights by name."""
  return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def main() -> None:
  """Writes the golden files."""
  GOLDEN.mkdir(exist_ok=True)
  for name, head in GOLDEN_CASES:
    config = CONFIGURATIONS[name]
    model = random_model(config, head)
    file = golden_file(name, head)
    save_golden(file, weights(model), run(model, batch(config, head), head))
    print(f'{file.name}: {file.stat().st_size:,} bytes')


if __name__ == '__main__':
  main()
