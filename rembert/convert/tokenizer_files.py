"""A SentencePiece vocabulary as tokenizer files of Hugging Face, which `AutoTokenizer` loads.

They give the same tokens for the same text, with white space and byte fallback. (transformers' class for RemBERT would
build another tokenizer, without byte fallback and with quotes rewritten, so the files name the general class.) What
differs:
- Text that spells a special token, `[MASK]`, becomes it, as everywhere in Hugging Face. Text that spells a byte token,
  `<0x41>`, or contains SentencePiece's `▁`, is not supported.
- SentencePiece sums scores in float32 from the beginning of a text. In a paragraph of a thousand characters, two
  segmentations of a word whose scores agree to four digits may be exchanged: one line in some thousands.
- A normaliser that replaces several characters at once (NFKC: half-width kana with a voiced mark) is applied by the
  tokenizers library to one character at a time.
"""

import json
import pathlib
import sys
from typing import Any

import sentencepiece
import tokenizers
from etils import epath
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from rembert.tokenizer import parse_model

_SPECIAL = {
  'pad_token': '[PAD]',
  'unk_token': '[UNK]',
  'cls_token': '[CLS]',
  'sep_token': '[SEP]',
  'mask_token': '[MASK]',
  'bos_token': '[CLS]',
  'eos_token': '[SEP]',
}


def write_tokenizer(vocabulary: epath.PathLike, folder: pathlib.Path, *, longest: int) -> None:
  """Writes `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and the vocabulary itself.

  `longest` is the number of the model's positions, to which the tokenizer truncates.
  """
  content = epath.Path(vocabulary).read_bytes()
  (folder / 'sentencepiece.model').write_bytes(content)
  build_tokenizer(content).save(str(folder / 'tokenizer.json'))
  config = {
    **_SPECIAL,
    'tokenizer_class': 'PreTrainedTokenizerFast',
    'model_max_length': longest,
    'model_input_names': ['input_ids', 'token_type_ids', 'attention_mask'],
    'clean_up_tokenization_spaces': False,
  }
  (folder / 'tokenizer_config.json').write_text(json.dumps(config, indent=2, ensure_ascii=False))
  (folder / 'special_tokens_map.json').write_text(json.dumps(_SPECIAL, indent=2))


def build_tokenizer(model: bytes) -> tokenizers.Tokenizer:
  """The tokenizer equivalent to a serialised SentencePiece unigram model."""
  proto = parse_model(model)
  pieces = [(piece.piece, piece.score) for piece in proto.pieces]
  has_bytes = proto.trainer_spec.byte_fallback
  tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=proto.trainer_spec.unk_id, byte_fallback=has_bytes))
  spec = proto.normalizer_spec
  steps = _character_rules(model, spec)
  if spec.remove_extra_whitespaces:
    # Only spaces: other white space is an ordinary character, unless a rule has replaced it by a space.
    steps += [
      normalizers.Replace(tokenizers.Regex(r'\A +| +\z'), ''),
      normalizers.Replace(tokenizers.Regex(' {2,}'), ' '),
    ]
  tokenizer.normalizer = normalizers.Sequence(steps)
  scheme = 'always' if spec.add_dummy_prefix else 'never'
  tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement='▁', prepend_scheme=scheme)
  tokenizer.decoder = decoders.Sequence(
    [
      decoders.Replace('▁', ' '),
      *([decoders.ByteFallback()] if has_bytes else []),
      decoders.Fuse(),
      *([decoders.Strip(' ', 1, 0)] if spec.add_dummy_prefix else []),
    ]
  )
  tokenizer.add_special_tokens(
    # A mask takes the space before it, as in transformers' RemBERT: `the [MASK]` has no token for the space.
    [
      tokenizers.AddedToken(piece, normalized=False, lstrip=piece == '[MASK]')
      for piece in dict.fromkeys(_SPECIAL.values())
    ]
  )
  tokenizer.post_processor = processors.TemplateProcessing(
    single='[CLS]:0 $A:0 [SEP]:0',
    pair='[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1',
    special_tokens=[(piece, tokenizer.token_to_id(piece)) for piece in ('[CLS]', '[SEP]')],
  )
  return tokenizer


def _character_rules(model: bytes, spec: Any) -> list[normalizers.Normalizer]:
  """Normalisation of single characters.

  The tokenizers library applies a compiled map grapheme by grapheme, and loses an accent on a replaced space. A map
  that only makes spaces, as in vocabularies of this project, becomes plain rules.
  """
  compiled = spec.precompiled_charsmap
  if not compiled:
    return []
  replacements = compiled[4 + int.from_bytes(compiled[:4], 'little') :]
  if set(replacements.split(b'\0')) - {b' ', b''}:
    return [normalizers.Precompiled(compiled)]
  normalizer = sentencepiece.SentencePieceNormalizer(model_proto=model)
  spaces = [
    character
    for character in map(chr, range(1, sys.maxunicode + 1))
    if character != ' '
    and character.isspace()
    and normalizer.normalize(f'a{character}b') == normalizer.normalize('a b')
  ]
  return [normalizers.Replace(tokenizers.Regex('[' + ''.join(f'\\x{{{ord(c):x}}}' for c in spaces) + ']'), ' ')]
