"""Loss → update, as all benchmarks of training steps make it: BERT's AdamW after clipping by global norm."""

from collections.abc import Callable

from benchmarks.turns import Run

WEIGHT_DECAY, EPSILON, CLIP_NORM = 0.01, 1e-6, 1.0
# A run makes very many steps, one after the other. Torch's first dozen take longer, on a CPU.
STEPS_TO_WARM_UP, STEPS_IN_A_ROW = 8, 3


def our_optimizer(learning_rate: float):
  """This project's, an `optax.GradientTransformation`, at a rate that stays."""
  from rembert.training import optimizer

  options = optimizer.OptimizerConfig(learning_rate, 0, eps=EPSILON, weight_decay=WEIGHT_DECAY, clip_norm=CLIP_NORM)
  return optimizer.make_optimizer(options, total_steps=1_000_000)


def torch_step(model, loss_of: Callable, learning_rate: float, *, device: str = 'cpu', autocast: bool = False) -> Run:
  """`AdamW` in its fused form, which Hugging Face's Trainer takes by default, and `clip_grad_norm_`.

  Args:
    model: `torch.nn.Module` whose parameters are learned.
    loss_of: without arguments; the model's loss on the batch, computed under autocast to bfloat16 if `autocast`.
    learning_rate: stays.
    device: 'cpu' or 'cuda'.
    autocast: see `loss_of`.
  """
  import torch

  parameters = list(model.parameters())
  options = {'lr': learning_rate, 'eps': EPSILON, 'weight_decay': WEIGHT_DECAY, 'fused': True}
  optimizer = torch.optim.AdamW(parameters, **options)

  def run() -> dict[str, float]:
    optimizer.zero_grad()
    with torch.autocast(device, torch.bfloat16, enabled=autocast):
      loss = loss_of()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
    optimizer.step()
    return {'loss': loss.item()}  # waits for the device

  return run
