"""Draws the pictures of docs/images that show where models have their parameters.

python -m docs.tools.parameters      # `make pictures`
"""

import pathlib
from collections.abc import Iterable

from rembert import configuration
from rembert.model.config import RemBertConfig
from rembert.model.parameter_count import ParameterCounts, count_parameters
from rembert.plotting.training import plot_parameters

ROOT = pathlib.Path(__file__).parents[2]
IMAGES = ROOT / 'docs' / 'images'
# By picture, from top to bottom: the model, and its name there. Tables 2, 3, 4, 6 and 7.
PICTURES = {
  # Of the README: where BERT has its parameters, and where RemBERT has them.
  'parameters.png': {
    'coupled768': 'multilingual BERT:\none table',
    'in128_out768': 'decoupled:\n128 in, 768 out',
    'layers23': 'reinvested\nin 11 layers',
    'rembert': 'RemBERT,\nas released',
  },
  # Of docs/concepts/embedding_coupling.md: what the paper changes, one thing after the other.
  'concept_parameters.png': {
    'coupled768': 'coupled, 768',
    'in768_out768': '768 in, 768 out',
    'in128_out768': '128 in, 768 out',
    'in128_out3072': '128 in, 3072 out',
    'layers23': '128 in, 768 out,\n23 layers',
  },
}


def counted(models: Iterable[str], *scale: str) -> list[ParameterCounts]:
  """Of files of gin/models, at full size or at the `scale` of a gin file."""
  found = []
  for model in models:
    configuration.load([f'gin/models/{model}.gin', *scale], [])
    found.append(count_parameters(configuration.build(RemBertConfig)))
  return found


def main() -> None:
  """Writes the pictures."""
  for file, models in PICTURES.items():
    picture = IMAGES / file
    bars = zip(models.values(), counted(models), strict=True)
    picture.write_bytes(plot_parameters([(name, each.by_part, each.kept_by_part) for name, each in bars]).png())
    print(f'{file}: {picture.stat().st_size:,} bytes')


if __name__ == '__main__':
  main()
