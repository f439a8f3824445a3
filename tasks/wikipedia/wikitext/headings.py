"""Titles of the sections that hold no prose of the article, by language: notes, sources, links, galleries.

The communities agreed on them; the tables hold the usual ones, not all.
"""

import functools

# Titles are separated by bars.
_BOILERPLATE = {
  'af': 'Verwysings|Bronne|Eksterne skakels|Sien ook|Bibliografie|Voetnotas',
  'ar': (
    'مراجع|المراجع|مصادر|المصادر|وصلات خارجية|روابط خارجية|انظر أيضًا|انظر أيضا|اقرأ أيضًا|طالع أيضًا|هوامش|'
    'الهوامش|ملاحظات|معرض صور|قراءات إضافية|مصادر ومراجع|المراجع والمصادر|وصلات|فهرس المراجع|معلومات مرجعية|'
    'ملحوظات|كتب ومنشورات'
  ),
  'bg': (
    'Източници|Външни препратки|Бележки|Вижте също|Литература|Галерия|Бележки и източници|Вижте още|'
    'Допълнителна литература'
  ),
  'bn': 'তথ্যসূত্র|বহিঃসংযোগ|আরও দেখুন|আরো দেখুন|টীকা|পাদটীকা|গ্রন্থপঞ্জি|উৎস|আরও পড়ুন',
  'ca': "Referències|Enllaços externs|Vegeu també|Bibliografia|Notes|Notes i referències|Galeria|Galeria d'imatges",
  'cs': (
    'Odkazy|Reference|Externí odkazy|Literatura|Související články|Poznámky|Galerie|Zdroje|Poznámky a reference|Prameny'
  ),
  'da': (
    'Referencer|Eksterne henvisninger|Kilder|Se også|Noter|Litteratur|Fodnoter|Kilder/Eksterne henvisninger|'
    'Galleri|Kilder og henvisninger|Ekstern henvisning|Eksterne links|Bibliografi'
  ),
  'de': (
    'Einzelnachweise|Weblinks|Siehe auch|Literatur|Quellen|Anmerkungen|Belege|Fußnoten|Nachweise|Galerie|'
    'Weblink|Einzelnachweise und Anmerkungen|Anmerkungen und Einzelnachweise|Quellen und Literatur|'
    'Literatur und Quellen|Weiterführende Literatur|Bilder|Bildergalerie|Einzelnachweis'
  ),
  'el': (
    'Παραπομπές|Εξωτερικοί σύνδεσμοι|Δείτε επίσης|Βιβλιογραφία|Πηγές|Σημειώσεις|Υποσημειώσεις|'
    'Προτεινόμενη βιβλιογραφία|Παραπομπές - σημειώσεις|Παραπομπές σημειώσεις|Παραπομπές και σημειώσεις|'
    'Σημειώσεις και παραπομπές|Αναφορές|Δείτε ακόμη|Σχετικά λήμματα|Εξωτερικές συνδέσεις|Ψηφιακό αρχείο ΕΡΤ|'
    'Φωτογραφίες|Πινακοθήκη|Εξωτερικός σύνδεσμος|Γκαλερί|Περαιτέρω ανάγνωση|Παραπομπές-σημειώσεις|'
    'Πηγές - παραπομπές|Πηγές και παραπομπές'
  ),
  'en': (
    'References|External links|See also|Notes|Further reading|Bibliography|Footnotes|Sources|Citations|'
    'Works cited|Gallery|Notes and references|References and notes|External link|Other websites|Related pages|'
    'Additional reading|Explanatory notes|Notes and citations|References and further reading|'
    'General references|Selected bibliography|Image gallery|Endnotes|Bibliography and further reading|'
    'Further reading and external links|References and sources|Related topics|Cited sources|'
    'General and cited references|General and cited sources|Cited references|References cited|'
    'Literature cited|Reference list'
  ),
  'eo': 'Referencoj|Eksteraj ligiloj|Vidu ankaŭ|Notoj|Bibliografio|Fontoj|Literaturo',
  'es': (
    'Referencias|Enlaces externos|Véase también|Bibliografía|Notas|Notas y referencias|Fuentes|Galería|'
    'Galería de imágenes|Bibliografía adicional|Lecturas adicionales|Referencias y notas|'
    'Bibliografía recomendada|Bibliografía complementaria'
  ),
  'et': 'Viited|Välislingid|Vaata ka|Kirjandus|Allikad|Märkused|Pildid|Galerii',
  'eu': 'Erreferentziak|Kanpo estekak|Ikus, gainera|Ikus gainera|Bibliografia|Oharrak|Argazki galeria',
  'fa': (
    'منابع|پانویس|پیوند به بیرون|جستارهای وابسته|یادداشت‌ها|نگارخانه|پی‌نوشت|پیوندهای خارجی|یادداشت|منبع|'
    'جستارهای مرتبط|برای مطالعه بیشتر|کتاب‌شناسی|ارجاعات|پانویس‌ها|پیوند به خارج|منابع و پانویس|فهرست منابع'
  ),
  'fi': (
    'Lähteet|Viitteet|Aiheesta muualla|Katso myös|Kirjallisuutta|Kirjallisuus|Huomautukset|Yleiset lähteet|'
    'Viitteet ja lähteet|Tietokirjallisuutta|Kuvagalleria|Kuvia|Aiheesta Wikipediassa'
  ),
  'fr': (
    'Notes et références|Liens externes|Voir aussi|Bibliographie|Références|Notes|Articles connexes|Annexes|'
    'Lien externe|Sources|Galerie|Article connexe|Sources et bibliographie|Pour approfondir|Liens internes|'
    "Notes et sources|Iconographie|Galerie de photographies|Galerie d'images|Références et notes|"
    'Note et référence|Note et références|Notes et référence|Médiagraphie'
  ),
  'gl': (
    'Notas|Véxase tamén|Outros artigos|Bibliografía|Ligazóns externas|Notas e referencias|Referencias|Galería|'
    'Galería de imaxes'
  ),
  'he': 'הערות שוליים|קישורים חיצוניים|ראו גם|לקריאה נוספת|גלריה|מקורות|ביאורים|הערות|ביבליוגרפיה|גלריית תמונות',
  'hi': (
    'सन्दर्भ|संदर्भ|बाहरी कड़ियाँ|इन्हें भी देखें|इन्हें भी देखे|टिप्पणियाँ|ग्रन्थसूची|ग्रंथसूची|स्रोत|अग्रिम पठन|'
    'बाहरी कड़ियां|यह भी देखें|सन्दर्भ सूची|अतिरिक्त पठन|बाहरी लिंक|बाह्य सूत्र|सन्दर्भग्रन्थ'
  ),
  'hr': (
    'Izvori|Vanjske poveznice|Poveznice|Literatura|Bilješke|Galerija|Više informacija|Vidi još|'
    'Bilješke i izvori|Unutarnje poveznice'
  ),
  'hu': (
    'Jegyzetek|Források|További információk|Kapcsolódó szócikkek|Irodalom|Lásd még|Galéria|Külső hivatkozások|'
    'Képgaléria|Kapcsolódó cikkek|Ajánlott irodalom|Megjegyzések|Képek'
  ),
  'hy': (
    'Ծանոթագրություններ|Արտաքին հղումներ|Տես նաև|Գրականություն|Աղբյուրներ|Նշումներ|Պատկերասրահ|'
    'Գրականության ցանկ|Աղբյուր|Մատենագրություն|Նկարներ|Հղումներ|Տե՛ս նաև|Տե՜ս նաև|'
    'Նշումներ և ծանոթագրություններ|Օգտագործված գրականություն|Լրացուցիչ գրականություն|'
    'Գրականություն հայերեն լեզվով|Լուսանկարներ|Ծանոթագրություն|Տեսեք նաև|Սկզբնաղբյուրներ'
  ),
  'id': (
    'Referensi|Pranala luar|Lihat juga|Lihat pula|Catatan|Catatan kaki|Daftar pustaka|Bacaan|Bacaan lanjutan|'
    'Bibliografi|Rujukan|Galeri|Sumber|Kepustakaan|Bacaan lebih lanjut'
  ),
  'it': (
    'Note|Altri progetti|Collegamenti esterni|Voci correlate|Bibliografia|Galleria fotografica|Fonti|'
    "Galleria d'immagini|Riferimenti|Note e riferimenti|Galleria|Riferimenti bibliografici|Altre letture"
  ),
  'ja': (
    '脚注|関連項目|外部リンク|参考文献|出典|注釈|脚注・出典|注釈・出典|関連文献|脚註|註釈|注|関連書籍|'
    'ギャラリー|画像|出典・脚注|外部サイト|参照|注記|引用文献|参考資料|参考書籍|関連記事|注釈と出典|資料|'
    '出典・参考文献|注・出典'
  ),
  'ka': 'სქოლიო|რესურსები ინტერნეტში|იხილეთ აგრეთვე|ლიტერატურა|გალერეა',
  'kk': 'Дереккөздер|Сыртқы сілтемелер|Тағы қараңыз|Әдебиет|Пайдаланған әдебиет|Галерея',
  'ko': (
    '각주|같이 보기|외부 링크|참고 문헌|참고문헌|출처|주석|갤러리|함께 보기|바깥 고리|참고 자료|내용주|'
    '관련 항목|주해|참고|관련 서적'
  ),
  'lt': 'Šaltiniai|Nuorodos|Taip pat skaitykite|Literatūra|Išnašos|Galerija|Taip pat žiūrėkite',
  'lv': 'Atsauces|Ārējās saites|Skatīt arī|Literatūra|Piezīmes|Piezīmes un atsauces|Galerija',
  'mk': 'Наводи|Надворешни врски|Поврзано|Литература|Белешки|Галерија|Извори',
  'ms': 'Rujukan|Pautan luar|Lihat juga|Nota|Catatan|Bibliografi|Bacaan lanjut|Galeri',
  'nl': (
    'Externe links|Bronnen|Referenties|Zie ook|Literatuur|Externe link|Bronnen, noten en/of referenties|Noten|'
    'Voetnoten|Bronvermelding|Bron|Galerij|Bibliografie|Afbeeldingen|Bronnen en referenties|'
    'Noten en referenties|Galerie|Verder lezen|Geraadpleegde literatuur|Fotogalerij|Literatuur en bronnen'
  ),
  'nn': 'Kjelder|Bakgrunnsstoff|Sjå òg|Litteratur|Fotnotar|Referansar|Notar',
  'no': (
    'Referanser|Eksterne lenker|Se også|Litteratur|Kilder|Noter|Fotnoter|Galleri|Ekstern lenke|'
    'Noter og referanser|Videre lesning|Referanser og litteratur'
  ),
  'pl': (
    'Przypisy|Linki zewnętrzne|Bibliografia|Zobacz też|Uwagi|Literatura|Galeria|Literatura dodatkowa|Źródła|'
    'Link zewnętrzny'
  ),
  'pt': (
    'Referências|Ligações externas|Ver também|Bibliografia|Notas|Notas e referências|Fontes|Galeria|'
    'Galeria de imagens|Leitura adicional|Leituras adicionais|Links externos|Referências bibliográficas|'
    'Referência|Ligação externa|Imagens|Veja também'
  ),
  'ro': (
    'Note|Legături externe|Bibliografie|Vezi și|Referințe|Note de completare|Lectură suplimentară|Galerie|'
    'Galerie de imagini|Imagini|Surse|Vezi şi|Legături interne|Referinţe|Galerie foto|Note și referințe'
  ),
  'ru': (
    'Примечания|Литература|Ссылки|См. также|Галерея|Источники|Комментарии|Смотри также|Библиография|'
    'Фотогалерея|Сноски|Смотрите также|Внешние ссылки|Примечания и источники|Источники и литература|'
    'Литература и источники|Дополнительная литература|Рекомендуемая литература|Ссылки и источники|'
    'Научная литература|Использованная литература|В астрономических каталогах|Изображения'
  ),
  'sh': (
    'Reference|Izvori|Vanjske veze|Literatura|Vanjski linkovi|Povezano|Također pogledajte|Vidi još|Napomene|Galerija'
  ),
  'sk': (
    'Referencie|Externé odkazy|Iné projekty|Pozri aj|Literatúra|Zdroj|Zdroje|Galéria|Poznámky|'
    'Poznámky a referencie|Referencie a bibliografia|Zdroje a odkazy'
  ),
  'sl': (
    'Zunanje povezave|Viri|Sklici|Opombe|Glej tudi|Literatura|Galerija|Opombe in reference|Reference|Sklici in opombe'
  ),
  'sq': (
    'Referime|Referimet|Shiko edhe|Shih edhe|Lidhje të jashtme|Burimi|Burime|Literatura|Galeria|Shiko edhe këtë|Shënime'
  ),
  'sr': 'Референце|Спољашње везе|Литература|Види још|Извори|Напомене|Галерија|Белешке|Додатна литература',
  'sv': (
    'Referenser|Externa länkar|Källor|Se även|Noter|Litteratur|Fotnoter|Källor och referenser|Vidare läsning|'
    'Källförteckning|Extern länk|Galleri|Tryckta källor|Webbkällor|Bildgalleri|Noter och referenser|'
    'Anmärkningar|Bilder'
  ),
  'sw': (
    'Marejeo|Viungo vya nje|Tazama pia|Tanbihi|Viungo vya Nje|Kujisomea|Angalia pia|Vyanzo|Maelezo|Rejea|'
    'Marejeleo|Picha'
  ),
  'ta': 'மேற்கோள்கள்|வெளி இணைப்புகள்|இவற்றையும் பார்க்கவும்|உசாத்துணை|குறிப்புகள்|வெளியிணைப்புகள்|மேலும் படிக்க',
  'te': 'మూలాలు|బయటి లింకులు|ఇవి కూడా చూడండి|బాహ్య లంకెలు|వనరులు|గమనికలు',
  'th': (
    'อ้างอิง|แหล่งข้อมูลอื่น|ดูเพิ่ม|รายการอ้างอิง|เชิงอรรถ|หมายเหตุ|บรรณานุกรม|หนังสืออ่านเพิ่มเติม|แหล่งอ้างอิง|'
    'ลิงก์ภายนอก|อ่านเพิ่ม|ระเบียงภาพ|ดูเพิ่มเติม|อ่านเพิ่มเติม|อ้างอิงและเชิงอรรถ|เชิงอรรถและอ้างอิง|คลังภาพ'
  ),
  'tl': 'Mga sanggunian|Sanggunian|Mga kawing panlabas|Tingnan din|Mga panlabas na link|Talababa|Mga talababa',
  'tr': (
    'Kaynakça|Dış bağlantılar|Ayrıca bakınız|Notlar|Galeri|Kaynaklar|Dipnotlar|Konuyla ilgili yayınlar|'
    'Resim galerisi|Notlar ve kaynaklar|Konuyla ilgili yazılar'
  ),
  'uk': (
    'Примітки|Посилання|Джерела|Література|Див. також|Галерея|Виноски|Джерела та література|'
    'Джерела і література|Бібліографія|Коментарі|Література та джерела|Література і джерела|'
    'Зовнішні посилання|Дивіться також|Світлини|Дивись також|Джерела й література|Посилання та джерела|'
    'Література та посилання|Примітки та джерела|Зображення|Додаткова література|Дивись ще'
  ),
  'ur': (
    'حوالہ جات|بیرونی روابط|مزید دیکھیے|مزید دیکھیں|نگار خانہ|متعلقہ مضامین|حواشی|کتابیات|مزید پڑھیے|بیرونی ربط|ملاحظات'
  ),
  'uz': 'Manbalar|Havolalar|Adabiyotlar|Yana qarang|Izohlar|Galereya|Tashqi havolalar',
  'vi': (
    'Tham khảo|Liên kết ngoài|Xem thêm|Chú thích|Đọc thêm|Ghi chú|Nguồn|Hình ảnh|Thư mục|Thư viện ảnh|'
    'Nguồn tham khảo|Tài liệu tham khảo|Ghi chú và tham khảo|Thư viện hình ảnh|Nguồn và chú thích|'
    'Chú thích và tham khảo|Tham khảo thêm|Chú giải|Chú thích và nguồn|Nguồn dẫn|Ghi chú và nguồn|'
    'Thư mục tham khảo|Ghi chú và chú thích|Nguồn trích dẫn|Trích dẫn|Bộ sưu tập hình|Phụ chú'
  ),
  'zh': (
    '参考文献|外部链接|参见|参考资料|注释|外部連結|參考文獻|參見|參考資料|註釋|参看|延伸阅读|延伸閱讀|腳註|'
    '脚注|注釋|來源|来源|图集|圖集|相关条目|相關條目|參看|参考|參考|备注|備註|图片|圖片|画廊|畫廊|参考来源|'
    '參考來源|资料来源|資料來源|注解|註解|参考书目|參考書目|外部連接|相册|相關|图库|圖庫|扩展阅读|外部联接|'
    '参阅|參閱|參照|注脚|註腳|引用|引注|附注|附註'
  ),
}


@functools.cache
def boilerplate_headings(language: str) -> frozenset[str]:
  """Titles, case folded, of the sections without prose: English and the language's own.

  For a language without a table, those of all tables: an edition that small writes its last sections after the model
  of a larger neighbour.

  Args:
    language: Wikipedia's code.
  """
  tables = [_BOILERPLATE['en'], _BOILERPLATE[language]] if language in _BOILERPLATE else _BOILERPLATE.values()
  return frozenset(title.casefold() for title in '|'.join(tables).split('|'))
