"""Where the data of XTREME's tasks has a public home, and how each file is known to be the right one.

Sizes and SHA-256 are those that TensorFlow Datasets and Hugging Face's `xtreme` and `xnli` have recorded for the same
files. A file that nobody had recorded would be taken as it comes, and remembered.
"""

import dataclasses

from tasks.xtreme.benchmark import TASKS
from tasks.xtreme.bucc2018 import LANGUAGES as BUCC_LANGUAGES
from tasks.xtreme.tatoeba import LANGUAGES as TATOEBA_LANGUAGES


@dataclasses.dataclass(frozen=True)
class Source:
  """A file to be fetched.

  Attributes:
    name: of the file, in the folder of downloads.
    urls: where it is; the second is asked when the first has not got it.
    size: in bytes; None where it is not known.
    sha256: of its content; None where it is not known.
    by_hand: what a person can do where all addresses fail.
  """

  name: str
  urls: tuple[str, ...]
  size: int | None = None
  sha256: str | None = None
  by_hand: str = ''


# Tatoeba's files have three-letter codes (ISO 639-3).
TATOEBA_CODES = {
  **{'af': 'afr', 'ar': 'ara', 'bg': 'bul', 'bn': 'ben', 'de': 'deu', 'el': 'ell', 'es': 'spa', 'et': 'est'},
  **{'eu': 'eus', 'fa': 'pes', 'fi': 'fin', 'fr': 'fra', 'he': 'heb', 'hi': 'hin', 'hu': 'hun', 'id': 'ind'},
  **{'it': 'ita', 'ja': 'jpn', 'jv': 'jav', 'ka': 'kat', 'kk': 'kaz', 'ko': 'kor', 'ml': 'mal', 'mr': 'mar'},
  **{'nl': 'nld', 'pt': 'por', 'ru': 'rus', 'sw': 'swh', 'ta': 'tam', 'te': 'tel', 'th': 'tha', 'tl': 'tgl'},
  **{'tr': 'tur', 'ur': 'urd', 'vi': 'vie', 'zh': 'cmn'},
}

# File, bytes, SHA-256.
_KNOWN = """
  XNLI-MT-1.0.zip 466098360 f732517ba2fb1d550e9f3c2aabaef6017c91ee2dcec90e878f138764d224db05
  XNLI-1.0.zip 17865352 4ba1d5e1afdb7161f0f23c66dc787802ccfa8a25a3ddd3b165a35e50df346ab1
  x-final.tar.gz 30282057 4146db499101d66e68ae4c8ed3cf9dadecd625f44b7d8cf3d4a0fe93afc4fd9f
  ud-treebanks-v2.5.tgz 355216681 5ff973e44345a5f69b94cc1427158e14e851c967d58773cc2ac5a1d3adaca409
  panx_dataset.zip 234008884 164814b64f749ad000988b5ab45050b5116913b3db466ab173008955ddf649a4
  dev-v1.1.json 4854279 95aa6a52d5d6a735563366753ca50492a658031da74f301ac5238b03966972c9
  train-v1.1.json 30288272 3527663986b8295af4f7fcdff1ba1ff3f72d07d61a20f487cb238a6ef92fd955
  xquad.ar.json 1582988 abdabd7afed5c635d99cca0f3f0d0c9d9ed0bc77451e963c2e4e0638c29e486d
  xquad.de.json 669810 990b5d746746ed65ed4702ea5f35f99ffa4e2f1c390c07d003642acd937916f9
  xquad.el.json 1918889 821cf0f88e73fa258fd2f548b19b6ec39f7025059e16f6f9fc8cd797c9c3663e
  xquad.en.json 609383 e4c57d1c9143aaa1c5d265ba5987a65f4e69528d2a98f29d6e75019b10344f29
  xquad.es.json 684322 dcbae93ec3a9f4b9e78fd834a171d6f96c1a875e10e15b7530b7e4ef4971e37e
  xquad.hi.json 1680538 df2cce3532b37e9beb8979704b5c9a4bf874358f105395a298b89427b43b9d24
  xquad.ru.json 1896368 208d5b1aa154c52b1b5c5eda16281e455e8fd198cdb9af3f469f0d6037d973bf
  xquad.th.json 1809143 5cdda11d0e1e075f7872abf4e6ae830388ce7f617964d542308e9ae4257e0f43
  xquad.tr.json 729506 92179a564774b7696100d144c1e10870d0a966b6fccbdd254a65b9d2ab1971cc
  xquad.vi.json 911401 f619a1eb11fb42d3ab0834259e488a65f585447ef6154437bfb7199d85161a04
  xquad.zh.json 808652 691d0b3359bc6b8faa8de931dfdfe21d50a65861ae348e32a0d1a0190b0c8835
  MLQA_V1.zip 75719050 246e8089933d13007fe80684d5c5c0713d6834cf8b3b4a0ec7c66f0a0d2baac8
  tydiqa-goldp-v1.1-dev.tgz 1725055 5a415d019a345794c8a83191ecfe4a761eaab69dab79c3c9813d4379e1cc5519
  tydiqa-goldp-v1.1-train.json 58004076 cefc8e09ff2548d9b10a678d3a6bbbe5bc036be543f92418819ea676c97be23b
  tatoeba.afr-eng.afr 30586 7bb9e073ad8422d6bfdec7c9ebdcef8ac486e72b237200e447923a8b921a0a56
  tatoeba.afr-eng.eng 29049 0b700c125efb4030b4cc50d9d765d5884afc24f39296f29b028a1b2a8512034f
  tatoeba.ara-eng.ara 43582 e67a0ae072b79cd9e8eb09f166c3bc0b23488d39f5720f2ee0a8350ae17b719f
  tatoeba.ara-eng.eng 29068 3c11838c963f598a52dcf2f452b666353538257001db5c59c3a5f54a999b336b
  tatoeba.ben-eng.ben 65990 ac3385695d6a6c7e5d18e38ad4b8b7d3780f3df23dd0ff3f539071b8269a8613
  tatoeba.ben-eng.eng 25713 67fbe75fec549d436c3356b6d6f8dd53179b6a908661b5d507d28c7fee83350e
  tatoeba.bul-eng.bul 65500 f9fa90cf3599d8c87f7a6ed22f5d648e3ce6687c705656a8c8ea088d891f79d5
  tatoeba.bul-eng.eng 36779 4b03b3b52ffb7cf4286e0c4453c90910a3021546f160bdf0e4d39d1f45bfbc0b
  tatoeba.cmn-eng.cmn 33410 965d033966fcd186c89741ad49ab4b0a0b2bbd33e02666635ff3b2be23c1ac1f
  tatoeba.cmn-eng.eng 35521 29ba36232488f5806aceccac57c59c5e750ddd08edb40eef417e3ada9ff9a239
  tatoeba.deu-eng.deu 57121 edfa6f75a42554df388f45891735d5e4214158a99def4b73b5908af4a3054551
  tatoeba.deu-eng.eng 48446 eb9cc83a42f2c4b22f310d05311207e41abb56c2a084666cac3ee0f84d2d0b84
  tatoeba.ell-eng.ell 52202 4fb3d3d30bdafd15100dfad5c4680f8f2ed5ca87ed0a6122e2fe2aa21fee65e8
  tatoeba.ell-eng.eng 26759 1f630710e718e2f85a4e757d3c7f3d6e78ded0b25c99653b4c552138318d9ffe
  tatoeba.est-eng.eng 29732 bb033b10596178452aecf2d97ad25580251375e7d224d8b38dad3d93d69b1e4f
  tatoeba.est-eng.est 29996 94856999ef35e5357502d7ecf50419d0108b99270e507d9c57f8b283bd1be9c5
  tatoeba.eus-eng.eng 32008 1e80f0174ad544697fd69ddcf21287ca10c5e3cacba2fc42bf1d68c460d14ba2
  tatoeba.eus-eng.eus 34060 4255fb70a6c268b09fcc59a9b308f0fcaaf45ef45e66fc55bf3c80eac4d8c97b
  tatoeba.fin-eng.eng 35812 322e610359f4d24852e673bbe4524d52c26dbf980aca0760e95c66dc21ecd504
  tatoeba.fin-eng.fin 39857 8db3c734f755d578445947f1182f40faf2a9a0eca37561dd248717c088802d60
  tatoeba.fra-eng.eng 36291 5634220f8a26a9a23b84753a9aec0b0832e6bdaa9da3f83e0bd84c928c3f46e3
  tatoeba.fra-eng.fra 43727 644172ff9642fefa9e41c29b7d6f44196518e84350dc44d4992e943c0cca92b6
  tatoeba.heb-eng.eng 35840 73c27ed0f76c1d2da199230f05489749e10bb67ab879c6dfee8ca9807d6bd99c
  tatoeba.heb-eng.heb 47660 4a07ca4b8a6fb7ab499791573a2454730f47acbe209359d7b9372a9f6094a102
  tatoeba.hin-eng.eng 34090 adfce2269a55dbac69b25c0f4f6eb89e0f9383165485925a2e042e61b9480562
  tatoeba.hin-eng.hin 88468 15e4fb0a394be4438319f1d6955d1aea226e2a8c5ad38798b23b76ae43d742ed
  tatoeba.hun-eng.eng 33554 5323266e91ddee67ed1ae00d6bbac0cdf3d37749d1b2da3459bf0d424bc71383
  tatoeba.hun-eng.hun 35335 56bd0682be8c1db6568313650b3310d641cc8d0019d12dd7caf201302350eeac
  tatoeba.ind-eng.eng 34875 62a3f5127b60eb3526b8fa3994a68fa1a1f114f3a395307a8808a3517c05ffc5
  tatoeba.ind-eng.ind 39969 4f03cd70cba071f746eacd3ebf6b60fd5a8377ce18b4cc52edec6721f05f352a
  tatoeba.ita-eng.eng 31596 738bf8f981e42d285f4f08bc09238782d285b02050e6e95287aa4e998bb7b24b
  tatoeba.ita-eng.ita 34237 9b3f369d0ed92273b46dd3b983721636e3d15024ce7125f5103229249c386d26
  tatoeba.jav-eng.eng 6456 172776353690f6c047ea21da969fa6979980d692fff1cfbac17eb25851423760
  tatoeba.jav-eng.jav 7457 ad88399db8f94c2a040aa53e7e862225964fac9308a3beb3d5b38f3eca2f827f
  tatoeba.jpn-eng.eng 39239 b42129b34e1bf225ccc25fc00e532a6113af98adbc6605b93021bd8aadeb68b6
  tatoeba.jpn-eng.jpn 53844 56040bd6949170a631039d9f8f4c6440db8761b0065c9686feba55c99a320d46
  tatoeba.kat-eng.eng 21193 d70a14aa64fd7c6b545f11aea754a632e1cbecb91af27fcf6a98a8449a48a8e7
  tatoeba.kat-eng.kat 50967 6ef69b5efbf355597ed91eb355b33a5f524bdf0875dbeaaccf6375badc20e29b
  tatoeba.kaz-eng.eng 17491 0ab684e7032c6520540d5785adf00ef206d097221d0dd4dc9bcaabd64068e10d
  tatoeba.kaz-eng.kaz 29687 f20c682582a80b6aa10f3b933db93bc314449b554ce611e263bc75990b319aef
  tatoeba.kor-eng.eng 35085 f900cf3c9b72ed5a400e1804702863ff3df00be58eb060902e02285d0e68fab3
  tatoeba.kor-eng.kor 44054 e550c84184ec35b1a0dab3154284719511a21746e53c40f46eb6ab08179e9188
  tatoeba.mal-eng.eng 21765 4d80cdbb844cd4e33f874e5dc45c1cdda4f80998034448f7eb56b8b6532a6622
  tatoeba.mal-eng.mal 72952 1a896f54f85a454fb0123864049c65921ae9dfd0cafda6deef8060f0104d965e
  tatoeba.mar-eng.eng 27890 709d09b697dca053c814b9d525b72cb47cb011aa860c6598f3e2b1b3dd1280dd
  tatoeba.mar-eng.mar 72652 b2931584fbe62062beb97cc939e4d208ace5ee56f15808860ab14e130fd3c576
  tatoeba.nld-eng.eng 35397 3b8836749df573a53235b85ed6771f31bf2de428f520d2d6a1dd94b61b4ef057
  tatoeba.nld-eng.nld 37866 d564d4ce1c621ccaefdbe9f5cb08eacccc7bf2a0b58666303e84ca9c7973bdb7
  tatoeba.pes-eng.eng 34853 b5c6cf8c8d93ff8f2fe26b53f3ee29b62db9c6f7dcddcb086ba48953f4ce926b
  tatoeba.pes-eng.pes 58866 f1553713723491fe5876e1060b18fb4abf0c77be3ba06db2e3307e83aedbbb32
  tatoeba.por-eng.eng 35854 deb4568cfb7b7cbbc060a7fe97c4639fb4680842f4fcd28df791ffdbb753855a
  tatoeba.por-eng.por 39331 b0c926a232c9889a87a1a970f9399c5618c2d95baf204321e9da794c0aec16f5
  tatoeba.rus-eng.eng 33650 7b26f52d6085b7c4944d6f5f6f5b6e1932085b42112f1444db515ce59e878fb8
  tatoeba.rus-eng.rus 58822 446ff2cae66053c2277d9735b2c2df6b786cae258385f7ade7bed68d8835c6a0
  tatoeba.spa-eng.eng 34776 89e4470f4572040b1ca94b3edad97dcd8bd2f0141f072e12933b8659dadf917d
  tatoeba.spa-eng.spa 37490 f9628cea40481e8251f0999718bd893cff0f261752f5e526b3bc20284e2ca018
  tatoeba.swh-eng.eng 10822 e8539647caff9e329776ae863b6224d432923c6e4e9256b9df92ca58ff282eac
  tatoeba.swh-eng.swh 9645 1c672915446c336cc378676e6dbf91eb54d27bbfd0c61563d349265bc6374753
  tatoeba.tam-eng.eng 8888 e7c5106acdd100214a161970b2a5c31e7386e5b6a963e3d3afdf30412c90ac53
  tatoeba.tam-eng.tam 30553 bde87fb1ddedccf6c7a2b70ffdd19a959a573c113c2e7a041c4b623fb2170bde
  tatoeba.tel-eng.eng 6806 1efc2ef57d9b1ecebfc4baa45e86fd793e38473304e9c043aebabc3a1b29a294
  tatoeba.tel-eng.tel 18337 7e1a1bcd106cce650a09e2f042f1354b55b29bea2bcfa86554dfa0ad12ce8976
  tatoeba.tgl-eng.eng 31632 e7c9beda3f3072a968a34a7226a66d1ebf1dcb33cf002805dc752f80a7c620ae
  tatoeba.tgl-eng.tgl 36506 f99165dc05190b99f6574fe24db884ff85d111612a25e7a37323f001aafc2a6e
  tatoeba.tha-eng.eng 18439 2881c82d2c5fa59cf0a68bc9e012f5e0b0a716f7357cbecf77c247efc2fd7294
  tatoeba.tha-eng.tha 44759 65c7b3c01a56a1ac8971e72e0ea8e74a027718dc84044d8802c0ab36395a3156
  tatoeba.tur-eng.eng 34278 a768df7dd3d1344f872a458b32c3a65e24f8381826ccb16ba6677426176c8121
  tatoeba.tur-eng.tur 37607 1ffa0acc006018b3105abda41a4d4ca42f3c122964a49b71793546367b079a86
  tatoeba.urd-eng.eng 31893 dab35fda3f73b3fd86b6b9f9f9f6242430961aa5d1ac247adbc646867df79cec
  tatoeba.urd-eng.urd 56819 2efc22dc61885a9454aeeee68c8b841c7f9138d53ba644a82308bd210140450b
  tatoeba.vie-eng.eng 38686 a1f60bd8ae6c42224a4c050d2aa1ff4242d14827d64d7831e96ecf2b2c367f5f
  tatoeba.vie-eng.vie 52721 6dbb02d778b0bfc8678cd85f87db76de55dd7e409a26fe32ad42d50e0f1fff77
  bucc2018-de-en.sample-gold.tar.bz2 2529652 8e16ba8b02ef8d648b06adfbd6dfb188f43524e18f97b2b12a14a086caac62f3
  bucc2018-de-en.training-gold.tar.bz2 28189548 766e0fdebbd1438fb87c21254828eb13c8b997d8fbab002103dd060dcac50c5c
  bucc2018-fr-en.sample-gold.tar.bz2 1948831 df9eb3966954e163c9264076f7c9c1eb56d9d8a91855f9d3afbf2c0fdaef0a08
  bucc2018-fr-en.training-gold.tar.bz2 20757713 53c0d0e7dd97dc89593a2db25a26c5f0ccdc7113e8451263bb0c80e4c4c7dc30
  bucc2018-ru-en.sample-gold.tar.bz2 4269233 fce3cabc7ee50ddb4b18aa6fb090e2669c8383d2a29fc97eed6ae70fed9a23e5
  bucc2018-ru-en.training-gold.tar.bz2 37085079 1895df56e936ca3d4f5b12299ceffe0b7ff4806584c40bdaa3ae1d445f25afa5
  bucc2018-zh-en.sample-gold.tar.bz2 769869 a3425be5c0320ee131a0927b66c3e29befb3b481ebf1b87257e660e514bc16ac
  bucc2018-zh-en.training-gold.tar.bz2 6344925 3facb71798277c8f44dc78c1f8ae2110f254d0e14799f3508eedd54b4236877a
"""
_SIZES_AND_SUMS = {
  name: (int(size), sha256) for name, size, sha256 in (line.split() for line in _KNOWN.split('\n') if line)
}


def _source(name: str, *folders: str, by_hand: str = '') -> Source:
  size, sha256 = _SIZES_AND_SUMS.get(name, (None, None))
  return Source(name, tuple(f'{folder}/{name}' for folder in folders), size, sha256, by_hand)


_FACEBOOK = 'https://dl.fbaipublicfiles.com'
_LASER = 'https://raw.githubusercontent.com/facebookresearch/LASER/main/data/tatoeba/v1'
_XQUAD = 'https://raw.githubusercontent.com/google-deepmind/xquad/master'
_TYDIQA = 'https://storage.googleapis.com/tydiqa/v1.1'
_SQUAD = 'https://rajpurkar.github.io/SQuAD-explorer/dataset'
_LINDAT = 'https://lindat.mff.cuni.cz/repository/xmlui/bitstream/handle/11234/1-3105'
_BUCC = ('https://comparable.limsi.fr/bucc2018', 'https://comparable.lisn.upsaclay.fr/bucc2018')

# XTREME's own address for PAN-X, a shared folder of Amazon Drive, went with Amazon Drive. These are the same splits.
_PANX = 'https://s3.amazonaws.com/datasets.huggingface.co/wikiann/1.1.0'
_PANX_BY_HAND = (
  'the splits of Rahimi et al. (2019): https://github.com/afshinrahimi/mmner names mirrors. '
  'Any zip with LL.tar.gz for each language in it will do, as XTREME’s AmazonPhotos.zip '
  'did: call it {path}'
)

SOURCES: dict[str, tuple[Source, ...]] = {
  'xnli': (_source('XNLI-1.0.zip', f'{_FACEBOOK}/XNLI'), _source('XNLI-MT-1.0.zip', f'{_FACEBOOK}/XNLI')),
  'pawsx': (_source('x-final.tar.gz', 'https://storage.googleapis.com/paws/pawsx'),),
  'panx': (_source('panx_dataset.zip', _PANX, by_hand=_PANX_BY_HAND),),
  'udpos': (
    _source(
      'ud-treebanks-v2.5.tgz',
      _LINDAT,
      by_hand='http://hdl.handle.net/11234/1-3105 has Universal Dependencies 2.5: save ud-treebanks-v2.5.tgz as {path}',
    ),
  ),
  'squad': tuple(_source(f'{split}-v1.1.json', _SQUAD) for split in ('train', 'dev')),
  'xquad': tuple(_source(f'xquad.{language}.json', _XQUAD) for language in TASKS['xquad'].languages),
  'mlqa': (_source('MLQA_V1.zip', f'{_FACEBOOK}/MLQA'),),
  'tydiqa': tuple(_source(f'tydiqa-goldp-v1.1-{part}', _TYDIQA) for part in ('train.json', 'dev.tgz')),
  'tatoeba': tuple(
    _source(f'tatoeba.{code}-eng.{side}', _LASER)
    for code in (TATOEBA_CODES[language] for language in TATOEBA_LANGUAGES)
    for side in (code, 'eng')
  ),
  'bucc2018': tuple(
    _source(f'bucc2018-{language}-en.{part}-gold.tar.bz2', *_BUCC)
    for language in BUCC_LANGUAGES
    for part in ('sample', 'training')
  ),
}
