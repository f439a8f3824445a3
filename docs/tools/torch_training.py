"""Training as BERT trained, in torch on Hugging Face's RemBERT: losses, clipping, AdamW and schedule written out.

The reference of `docs.tools.training_parity` and tests/parity/test_training.py; shares only batches, configurations and
initial weights with this project's training. Needs torch.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
import transformers

from rembert.convert import huggingface
from rembert.model.config import RemBertConfig
from rembert.train.optimizer import OptimizerConfig

_NO_DECAY = ('bias', 'LayerNorm.weight')
_IGNORED = -100  # a label, in torch


def build_model(
  weights: Mapping[str, np.ndarray], config: RemBertConfig, head: str, labels: Sequence[str]
) -> transformers.PreTrainedModel:
  """Hugging Face's model of a head with these weights, by its names, in their dtype and without dropout."""
  content = huggingface.config_json(config, head, labels)
  architecture = getattr(transformers, content['architectures'][0])
  tensors = {name: torch.tensor(weight) for name, weight in weights.items()}
  model = architecture(transformers.RemBertConfig.from_dict(content)).to(next(iter(tensors.values())).dtype)
  model.load_state_dict(tensors)
  return model.eval()


def mean_loss(model: transformers.PreTrainedModel, head: str, batch: Mapping[str, np.ndarray]) -> torch.Tensor:
  """The mean loss over a batch of `rembert.data`."""
  ids = {name: torch.tensor(array, dtype=torch.long) for name, array in batch.items()}
  segments = ids['segment_ids']
  if head == 'mlm':
    # Documents that share a row do not see each other. A mask of four axes is added to the scores as it is.
    is_seen = (segments[:, :, None] == segments[:, None, :]) & (segments[:, None, :] > 0)
    mask = torch.zeros(is_seen.shape, dtype=model.dtype).masked_fill(~is_seen, torch.finfo(model.dtype).min)
    labels = torch.full_like(segments, _IGNORED)
    row, slot = torch.nonzero(ids['weights'], as_tuple=True)
    labels[row, ids['masked_positions'][row, slot]] = ids['targets'][row, slot]
    inputs = {'input_ids': ids['input_ids'], 'position_ids': ids['position_ids'], 'attention_mask': mask[:, None]}
    return model(**inputs, labels=labels).loss
  inputs = {'input_ids': ids['input_ids'], 'token_type_ids': ids['token_type_ids'], 'attention_mask': segments}
  labels = ids['labels'].masked_fill(ids['labels'] < 0, _IGNORED)
  if head != 'qa':
    return model(**inputs, labels=labels).loss
  # Not the loss of Hugging Face's model, in which an answer may begin on padding.
  output = model(**inputs)
  logits_Bx2xS = torch.stack([output.start_logits, output.end_logits], dim=1)
  logits_Bx2xS = logits_Bx2xS.masked_fill(segments[:, None] == 0, -torch.inf)
  return torch.nn.functional.cross_entropy(logits_Bx2xS.flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)


class BertAdamW(torch.optim.Optimizer):
  """AdamWeightDecayOptimizer of google-research/bert, optimization.py: Adam without bias correction."""

  @torch.no_grad()
  def step(self) -> None:
    """One update from the gradients."""
    for group in self.param_groups:
      b1, b2 = group['betas']
      for parameter in group['params']:
        state, gradient = self.state[parameter], parameter.grad
        m = b1 * state.get('m', 0) + (1 - b1) * gradient
        v = b2 * state.get('v', 0) + (1 - b2) * gradient**2
        state['m'], state['v'] = m, v
        update = m / (v.sqrt() + group['eps']) + group['weight_decay'] * parameter
        parameter -= group['lr'] * update


def train_step(
  model: transformers.PreTrainedModel, head: str, config: OptimizerConfig, total_steps: int
) -> Callable[[Mapping[str, np.ndarray]], float]:
  """A function that makes the next update, on a batch, and returns the loss before it."""
  decays = lambda name: not name.endswith(_NO_DECAY)
  groups = [
    {'params': [weight for name, weight in model.named_parameters() if decays(name)]},
    {'params': [weight for name, weight in model.named_parameters() if not decays(name)], 'weight_decay': 0.0},
  ]
  options = {'lr': 0.0, 'betas': (config.b1, config.b2), 'eps': config.eps, 'weight_decay': config.weight_decay}
  optimizer = torch.optim.AdamW(groups, **options) if config.bias_correction else BertAdamW(groups, options)
  step = 0

  def make_step(batch: Mapping[str, np.ndarray]) -> float:
    nonlocal step
    optimizer.zero_grad()
    loss = mean_loss(model, head, batch)
    loss.backward()
    gradients = [weight.grad for weight in model.parameters()]
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    rate = config.learning_rate * (1 - step / total_steps)
    if step < config.warmup_steps:
      rate = config.learning_rate * step / config.warmup_steps
    for group in optimizer.param_groups:
      group['lr'] = rate
    for gradient in gradients:
      gradient *= config.clip_norm / max(norm, config.clip_norm)
    optimizer.step()
    step += 1
    return loss.item()

  return make_step


def weights_of(model: transformers.PreTrainedModel) -> dict[str, np.ndarray]:
  """The weights by name, as views."""
  return {name: weight.detach().numpy() for name, weight in model.named_parameters()}
