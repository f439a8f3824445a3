"""Pictures of docs/images that are drawn from the code: PYTHONPATH=. .venv/bin/python docs/site/pictures.py"""

import pathlib

from rembert import configuration
from rembert.model.config import RemBertConfig
from rembert.model.parameter_counts import count_parameters
from rembert.report import drawing
from rembert.report.sections.parameters import _PARTS, bar_parts, millions

IMAGES = pathlib.Path(__file__).parent.parent / 'images'
MODELS = {
  'coupled768': 'coupled, 768',
  'in768_out768': '768 in, 768 out',
  'in128_out768': '128 in, 768 out',
  'in128_out3072': '128 in, 3072 out',
  'layers23': '128 in, 768 out, 23 layers',
}
BAR = 0.36


def parameters() -> bytes:
  """Where the parameters of five models sit, in pre-training and, fainter, in fine-tuning; PNG."""
  with drawing.canvas('parameters', alt='', width=8, height=4.2) as canvas:
    axes, seen = canvas.axes, set()
    for index, name in enumerate(MODELS):
      configuration.load([f'gin/models/{name}.gin'], [])
      counts = count_parameters(configuration.build(RemBertConfig))
      for is_kept, by_part in ((False, counts.by_part), (True, counts.kept_by_part)):
        left, y = 0.0, index + (is_kept - 0.5) * (BAR + 0.04)
        for (part, count), (_, _, colour) in zip(bar_parts(by_part).items(), _PARTS, strict=True):
          if not count:
            continue
          label = None if part in seen else part
          seen.add(part)
          colour, alpha = drawing.SERIES[colour], 0.55 if is_kept else 1
          axes.barh(y, count / 1e6, left=left, height=BAR, color=colour, alpha=alpha, label=label)
          left += count / 1e6
        axes.text(left + 4, y, millions(left * 1e6), va='center', fontsize=9)
    axes.set_yticks(range(len(MODELS)), MODELS.values())
    axes.invert_yaxis()
    axes.set_xlabel('parameters (millions)')
    axes.grid(axis='y', visible=False)
    axes.set_xlim(right=axes.get_xlim()[1] * 1.04)
    canvas.legend()
  return canvas.drawing.png


if __name__ == '__main__':
  (IMAGES / 'concept_parameters.png').write_bytes(parameters())
