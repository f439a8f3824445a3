"""Names of the namespaces under which links embed a picture or file the article, in all editions.

MediaWiki and its translators fixed them. A name missing here costs little: a dump's own header names its namespaces
(`dumps.read_namespaces`), and `links` knows a picture by the ending of its name.
"""

import dataclasses
import functools
from collections.abc import Mapping

# Names are separated by bars: current name first, then those that older text still uses. The English names hold
# everywhere and are not repeated.
_FILE_NAMESPACES = {
  'af': 'Lêer|Beeld',
  'als': 'Datei|Bild',
  'an': 'Imachen|Imagen',
  'ar': 'ملف|صورة',
  'arz': 'ملف|صورة',
  'ast': 'Ficheru|Archivu|Imaxen',
  'az': 'Fayl|Şəkil',
  'azb': 'فایل|شکیل',
  'bar': 'Datei|Bild',
  'be': 'Файл|Выява',
  'bg': 'Файл|Картинка',
  'bn': 'চিত্র',
  'br': 'Restr|Skeudenn',
  'bs': 'Datoteka|Slika',
  'ca': 'Fitxer|Imatge',
  'ce': 'Файл|Хlум',
  'cs': 'Soubor|Obrázek',
  'cv': 'Файл|Ӳкерчĕк|Изображени',
  'cy': 'Delwedd',
  'da': 'Fil|Billede',
  'de': 'Datei|Bild',
  'el': 'Αρχείο|Εικόνα',
  'eo': 'Dosiero',
  'es': 'Archivo|Imagen',
  'et': 'Pilt|Fail',
  'eu': 'Fitxategi|Irudi',
  'fa': 'پرونده|تصویر',
  'fi': 'Tiedosto|Kuva',
  'fo': 'Mynd',
  'fr': 'Fichier|Image',
  'ga': 'Íomhá',
  'gd': 'Faidhle|Dealbh',
  'gl': 'Ficheiro|Imaxe|Arquivo',
  'he': 'קובץ|תמונה',
  'hi': 'चित्र|फ़ाइल',
  'hr': 'Datoteka|Slika',
  'hsb': 'Dataja|Wobraz',
  'hu': 'Fájl|Kép',
  'hy': 'Պատկեր',
  'ia': 'Imagine|File',
  'id': 'Berkas|Gambar',
  'io': 'Arkivo|Imajo',
  'is': 'Mynd',
  'it': 'Immagine',
  'ja': 'ファイル|画像',
  'jv': 'Gambar|Berkas',
  'ka': 'ფაილი|სურათი',
  'kk': 'Сурет|Файл',
  'kn': 'ಚಿತ್ರ',
  'ko': '파일|그림',
  'ku': 'Wêne|Wêneyekî',
  'ky': 'Файл|Сүрөт',
  'la': 'Fasciculus|Imago',
  'lb': 'Fichier|Bild',
  'li': 'Plaetje|Aafbeilding',
  'lmo': 'Archivi|Immagine',
  'lt': 'Vaizdas',
  'lv': 'Attēls',
  'mg': 'Sary|Rakitra',
  'mk': 'Податотека|Слика',
  'ml': 'പ്രമാണം|ചിത്രം',
  'mn': 'Файл|Зураг',
  'mr': 'चित्र',
  'ms': 'Fail|Imej|Gambar',
  'my': 'ဖိုင်',
  'mzn': 'پرونده|تصویر',
  'nds': 'Bild',
  'ne': 'चित्र',
  'new': 'किपा',
  'nl': 'Bestand|Afbeelding',
  'nn': 'Fil|Bilde',
  'no': 'Fil|Bilde',
  'oc': 'Fichièr|Imatge',
  'os': 'Файл|Ныв',
  'pa': 'ਤਸਵੀਰ',
  'pl': 'Plik|Grafika',
  'pms': 'Figura',
  'pt': 'Ficheiro|Arquivo|Imagem',
  'qu': 'Rikcha|Imagen',
  'ro': 'Fișier|Fişier|Imagine',
  'ru': 'Файл|Изображение',
  'sa': 'सञ्चिका|चित्रम्',
  'sah': 'Билэ',
  'scn': 'Mmàggini|File',
  'sh': 'Datoteka|Slika|Датотека',
  'sk': 'Súbor|Obrázok',
  'sl': 'Slika|Datoteka',
  'sq': 'Skeda|Figura',
  'sr': 'Датотека|Слика|Datoteka|Slika',
  'sv': 'Fil|Bild',
  'sw': 'Picha|Faili',
  'ta': 'படிமம்',
  'te': 'దస్త్రం|బొమ్మ|ఫైలు',
  'tg': 'Акс|Файл',
  'th': 'ไฟล์|ภาพ',
  'tl': 'Talaksan|Larawan',
  'tr': 'Dosya|Resim',
  'tt': 'Файл|Рәсем',
  'uk': 'Файл|Зображення',
  'ur': 'فائل|ملف|تصویر',
  'uz': 'Fayl|Tasvir',
  'vec': 'File|Imàjine|Imagine',
  'vi': 'Tập tin|Hình',
  'war': 'Fayl|Paypay',
  'zh': '文件|檔案|档案|图像|圖像|图片|圖片',
}

_CATEGORY_NAMESPACES = {
  'af': 'Kategorie',
  'an': 'Categoría',
  'ar': 'تصنيف',
  'az': 'Kateqoriya',
  'azb': 'بؤلمه',
  'be': 'Катэгорыя',
  'bg': 'Категория',
  'bn': 'বিষয়শ্রেণী',
  'br': 'Rummad',
  'bs': 'Kategorija',
  'ca': 'Categoria',
  'ce': 'Категори',
  'ceb': 'Kategoriya',
  'cs': 'Kategorie',
  'cv': 'Категори',
  'cy': 'Categori',
  'da': 'Kategori',
  'de': 'Kategorie',
  'el': 'Κατηγορία',
  'eo': 'Kategorio',
  'es': 'Categoría',
  'et': 'Kategooria',
  'eu': 'Kategoria',
  'fa': 'رده',
  'fi': 'Luokka',
  'fo': 'Bólkur',
  'fr': 'Catégorie',
  'ga': 'Catagóir|Rang',
  'gd': 'Roinn-seòrsa',
  'gl': 'Categoría',
  'he': 'קטגוריה',
  'hi': 'श्रेणी',
  'hr': 'Kategorija',
  'hu': 'Kategória',
  'hy': 'Կատեգորիա',
  'id': 'Kategori',
  'is': 'Flokkur',
  'it': 'Categoria',
  'ja': 'カテゴリ',
  'ka': 'კატეგორია',
  'kk': 'Санат',
  'kn': 'ವರ್ಗ',
  'ko': '분류',
  'ku': 'Kategorî',
  'ky': 'Категория',
  'la': 'Categoria',
  'li': 'Categorie',
  'lmo': 'Categuria|Categoria',
  'lt': 'Kategorija',
  'lv': 'Kategorija',
  'mg': 'Sokajy',
  'mk': 'Категорија',
  'ml': 'വർഗ്ഗം',
  'mn': 'Ангилал',
  'mr': 'वर्ग',
  'my': 'ကဏ္ဍ',
  'mzn': 'رج',
  'nap': 'Categurìa|Categoria',
  'ne': 'श्रेणी',
  'new': 'पुचः',
  'nl': 'Categorie',
  'no': 'Kategori',
  'oc': 'Categoria',
  'os': 'Категори',
  'pa': 'ਸ਼੍ਰੇਣੀ',
  'pl': 'Kategoria',
  'pms': 'Categorìa',
  'pnb': 'گٹھ',
  'pt': 'Categoria',
  'qu': 'Katiguriya',
  'ro': 'Categorie',
  'ru': 'Категория',
  'sa': 'वर्गः',
  'scn': 'Catigurìa',
  'sk': 'Kategória',
  'sl': 'Kategorija',
  'sq': 'Kategoria',
  'sr': 'Категорија|Kategorija',
  'sv': 'Kategori',
  'sw': 'Jamii',
  'ta': 'பகுப்பு',
  'te': 'వర్గం',
  'tg': 'Гурӯҳ',
  'th': 'หมวดหมู่',
  'tl': 'Kategorya|Kaurian',
  'tr': 'Kategori',
  'tt': 'Төркем',
  'uk': 'Категорія',
  'ur': 'زمرہ',
  'uz': 'Turkum',
  'vec': 'Categoria',
  'vi': 'Thể loại',
  'vo': 'Klad',
  'war': 'Kaarangay',
  'zh': '分类|分類|类别',
}

# Links into these never show anything of the article: sound files are offered, not read.
_MEDIA_NAMESPACES = (
  'Media|Medium|Média|Médium|Медиа|Медіа|Медыя|Mediji|Медији|Медија|Medya|Meedia|Mídia|Multimédia|メディア|媒体|媒體|미디어|'
  'وسائط|ميديا|رسانه|מדיה|मीडिया|สื่อ|Phương tiện|Μέσο|Մեդիա|Mediatieto|Mèdia|Mediá|Medio'
)

_MEDIA, _FILE, _CATEGORY = -2, 6, 14  # MediaWiki's numbers


@dataclasses.dataclass(frozen=True)
class LinkNamespaces:
  """What may stand before the colon of a link that shows nothing of the article; names are case folded.

  Attributes:
    files: names under which a link embeds a picture or offers a sound.
    categories: names under which a link files the article.
  """

  files: frozenset[str]
  categories: frozenset[str]


def link_namespaces(own: Mapping[int, str] | None = None) -> LinkNamespaces:
  """The names of all editions, and beside them a wiki's own.

  Args:
    own: names by MediaWiki's number, as `dumps.read_namespaces` finds them in a dump.
  """
  names = tuple((number, name.casefold()) for number, name in (own or {}).items())
  return _link_namespaces(tuple(item for item in names if item[0] in (_MEDIA, _FILE, _CATEGORY)))


@functools.lru_cache(maxsize=256)
def _link_namespaces(own: tuple[tuple[int, str], ...]) -> LinkNamespaces:
  return LinkNamespaces(
    files=file_namespaces() | {name for number, name in own if number != _CATEGORY},
    categories=category_namespaces() | {name for number, name in own if number == _CATEGORY},
  )


@functools.cache
def file_namespaces() -> frozenset[str]:
  """Names under which links embed a picture or offer a sound, case folded, in all the editions of the table."""
  return frozenset(_split('|'.join(['File|Image', _MEDIA_NAMESPACES, *_FILE_NAMESPACES.values()])))


@functools.cache
def category_namespaces() -> frozenset[str]:
  """Names under which links file the article, case folded, in all the editions of the table."""
  return frozenset(_split('|'.join(['Category', *_CATEGORY_NAMESPACES.values()])))


def _split(names: str) -> list[str]:
  return [name.casefold() for name in names.split('|') if name]
