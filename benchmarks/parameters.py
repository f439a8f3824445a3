"""Draws docs/images/parameters.png: where BERT has its parameters, and where RemBERT has them.

python -m benchmarks.parameters      # `make pictures`
"""

import pathlib

from rembert import configuration
from rembert.model.config import RemBertConfig
from rembert.model.parameter_counts import ParameterCounts, count_parameters
from rembert.report.sections.parameters import bars

ROOT = pathlib.Path(__file__).parent.parent
PICTURE = ROOT / 'docs' / 'images' / 'parameters.png'
# From top to bottom: the name in the picture, and the model. Tables 2, 4, 6 and 7.
MODELS = (
  ('multilingual BERT:\none table', 'gin/models/coupled768.gin'),
  ('decoupled:\n128 in, 768 out', 'gin/models/in128_out768.gin'),
  ('reinvested\nin 11 layers', 'gin/models/layers23.gin'),
  ('RemBERT,\nas released', 'gin/models/rembert.gin'),
)


def counted() -> list[tuple[str, ParameterCounts]]:
  """The models by name."""
  found = []
  for name, file in MODELS:
    configuration.load([file], [])
    found.append((name, count_parameters(configuration.build(RemBertConfig))))
  return found


def main() -> None:
  """Writes the picture."""
  PICTURE.write_bytes(bars(counted()).png)
  print(f'{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes')


if __name__ == '__main__':
  main()
