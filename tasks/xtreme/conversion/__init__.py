"""Published archives to XTREME's layout, one module a task: what XTREME's own preprocessing writes, by other means.

Each module has `convert(archives) -> Iterator[Converted]`. Nothing is fetched or written here.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tasks.xtreme.conversion import bucc2018, mlqa, panx, pawsx, squad, tatoeba, tydiqa, udpos, xnli, xquad
from tasks.xtreme.conversion.converted import Converted

# Archives by file name to files of the layout.
CONVERSIONS: dict[str, Callable[[Mapping[str, Path]], Iterator[Converted]]] = {
  'xnli': xnli.convert,
  'pawsx': pawsx.convert,
  'panx': panx.convert,
  'udpos': udpos.convert,
  'squad': squad.convert,
  'xquad': xquad.convert,
  'mlqa': mlqa.convert,
  'tydiqa': tydiqa.convert,
  'tatoeba': tatoeba.convert,
  'bucc2018': bucc2018.convert,
}
