"""Tables as a csv writer writes them."""

import csv
import io
from collections.abc import Mapping, Sequence


def csv_of(rows: Sequence[Mapping], delimiter: str = ',', newline: str = '\n') -> str:
  """The text of a file with the columns of the first row."""
  text = io.StringIO(newline='')
  writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter, lineterminator=newline)
  writer.writeheader()
  writer.writerows(rows)
  return text.getvalue()
