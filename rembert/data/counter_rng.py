"""Counter-based random numbers: number n of row r of step s depends only on (seed, stream, s, r, n).

A tree of SplitMix64 generators (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014;
the finaliser is Stafford's variant 13, as in Java's SplittableRandom). Its output number n is `mix(state + γ(n + 1))`,
so each can be computed without those before it, and for a whole array at once; NumPy's own counter-based generator
costs a Python object per row. An output is the state of a generator one level down:

    seed → stream → step → row → number

With the levels above the same, different coordinates never share a state: γ is odd and `mix` a bijection.
"""

import numpy as np

_WORD = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd
MIX = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT = 31

# Purposes of a row's random numbers in masking: number purpose + position. No row has 2**32 tokens.
CHOICE, KIND, REPLACEMENT = (purpose << 32 for purpose in (0, 2, 3))


def _mix(words: np.ndarray) -> np.ndarray:
  """The finaliser, in place, of an array of uint64."""
  shifted = np.empty_like(words)
  for shift, factor in MIX:
    np.right_shift(words, np.uint64(shift), out=shifted)
    np.bitwise_xor(words, shifted, out=words)
    np.multiply(words, np.uint64(factor), out=words)  # modulo 2**64
  np.right_shift(words, np.uint64(LAST_SHIFT), out=shifted)
  return np.bitwise_xor(words, shifted, out=words)


def offsets(numbers: np.ndarray) -> np.ndarray:
  """Offsets from a state to each of its outputs, uint64; for `bits`."""
  return (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(GAMMA)


def bits(states: np.ndarray, offsets: np.ndarray) -> np.ndarray:
  """64 random bits for each pair of a state and an offset, uint64, broadcast against each other."""
  return _mix(np.add(states, offsets))


def row_states(seed: int, stream: int, step: int, first_row: int, rows: int) -> np.ndarray:
  """The states of rows `first_row`, `first_row` + 1, … of a step, uint64 [rows]. Integers count modulo 2**64."""
  state = np.zeros(1, np.uint64)
  for coordinate in (seed, stream, step):
    state = bits(state, offsets(np.array([coordinate & _WORD], np.uint64)))
  return bits(state, offsets(np.arange(first_row, first_row + rows)))


def distinct_bits(states_B: np.ndarray, first_number: int, count: int) -> np.ndarray:
  """Numbers `first_number` to `first_number` + `count` of the rows with these states, uint64 [B, S], distinct per row.

  They sort the members of a row randomly. The lowest bits are the column, the rest is random: 47 bits for
  65,536 columns. No number is all ones.
  """
  columns_S = np.arange(count, dtype=np.uint64)
  column_bits = (1 << count.bit_length()) - 1
  numbers_BxS = bits(states_B[:, None], offsets(columns_S + np.uint64(first_number)))
  np.bitwise_and(numbers_BxS, np.uint64(_WORD - column_bits), out=numbers_BxS)
  return np.bitwise_or(numbers_BxS, columns_S, out=numbers_BxS)


def uniform(random_bits: np.ndarray) -> np.ndarray:
  """Bits to float64 in [0, 1), all multiples of 2**-53 equally likely."""
  return (random_bits >> np.uint64(11)) * 2.0**-53
