# ruff: noqa: RUF001
"""Names of the file, media and category namespaces in all languages of MediaWiki, as links write them.

The names are from the message files of MediaWiki 1.27 and 1.43 (languages/messages/Messages*.php: names, aliases and
forms by gender), from the settings of Wikimedia wikis (wmf-config/core-Namespaces.php), and from 17 of these wikis
(`action=query&meta=siteinfo`).

One list serves all wikis: dumps contain the names of their namespaces, but no aliases, and the output of extraction
tools contains neither. Omitted are F, FL, DT, CT and KT (abbreviations), and Fix, Class, Guru, Pho, Rang and Sa. These
are English words, each a name in one small wiki, whose dump contains it.
"""

import unicodedata
from typing import Final

from preprocessing.characters import pin_characters

_FILES: Final = """
aafbeilding abruozdielis afaylu afbeelding alat alɣagdud amóhùnmáwòrán anaajaalaa apamduööt archivi archivo
archivu arkivo arquivo attēls ayaakuwapülee aŭdvidaĵo barakas barkas beeld beld belld berkas bestaand bestand
beureukaih bhengkek bielde bild bilde biliþ billede biru'_na_zayzyuwaw biru’_na_zayzyuwaw bithe bondol borkas
chitro ciɛl coadan dadai dataja datei datnyvei datoteca datoteka deem delwedd dencukaay documentu dosiero dosiye
dossia dosya dosye duoro_bimbu_zie duoro_kɔre dôdaj ewava eʼelyaaígíí faal faali fael faidhle faih fail faili
fails failu fajl fasciculus fayil fayl faylo faýl feil fexeiro ficheiro ficheru fichier fichièr fichiér fichye
fichyé fiché figura figure fiila fiileq fil file filpeikar fisiye fisye fitxategi fitxer fixeru fiùra fişier
fișier fotografija fájl fáìlì fáílú gambar gbofa gbyagulazhi gefre gepokan grafika hình iinrhatjhi imachen image
imagem imagen imagine imago imahen imaj imajen imajo imatge imaxe imaxen imedia imej immaggine immagina immagine
immàgini imàjine imådje irudi isimumathi itangazamakuru iyeltak kanaca kiʻi koga kuva kép ladawan
lahabali_kɔligu lifayela litratu liwuram lêer magod mamind meadhan meanyn meddia medeja medhia media medie medii
medij medija mediji medio medios mediu medium mediya medja medya medėjė meedia meedije meedijum meediä meyti
meán midia midiya midja midya miidia miidiya mitiya miðil miðill mmàggini multimedia multimédia muî-thé myiti
mynd mèdia mèdius mèḍia médhia média médiá médja médya mìdiyà mídia mûi-thé mēdiatl mēdijai nasha
natisinahikaniwoc ngokweenkcukacha nká nünamakanäd obrázok ofbeeldienge ofbeelding ofbyld ortam papeles
patas_bntasan payiil payl paypay pego phương_tiện picha pilt plaetje plik pāki pāpaho ragiv rakitra resim restr
restren rikcha räsem saadhan sarana sary seswantšho setshwantsho sineqetj_a_vecik skeda skeudenn slika soubor
stampa su'wret swret súbor ta'ãnga talaksan tangan taspa tasvir tiedosto tinkundla tipatcimoctakewin
tiätuvuárkká tugna tóng-àn tập_tin ugasan usòrò vaizdas velsku waihona wasilah wepo wobraz wékpo wêne
xibaarukaay ymele yɛwliɖonuji zūrbrukis àwòrán ákwúkwó_orünotu áméwn_igò émâge íomhá òbrôzk īxiptli şəkil αρχείο
αρχείον εικόνα εικόναν μέσο μέσον акс амедиа артовкс афаил аһар билэ боомг ви́дъ видъ выява датотека дѣло
зображення зураг зург изображение картинка меди медиа медий медиум медия медиј медија медйа медіа миэдьийэ
мультымедыя мэдыя ныв няйф ойуу податотека ресим рәсем слика срѣдьства сурат суред сурет сурт таспа файл
фотографија хlум ӳкерчĕк մեդիա պատկեր בילד טעקע מדיה מעדיע קו קובץ תמונה أسگ انځور اکس تاسپا تصویر جانیا دوتنه
ذريعات رسانه رسانه‌ای رسانگ رسنۍ زریعہ سۋرەت صورة عکس عڪس فاءيل فائل فاىل فايل فایل فيشي فَیِل مديا مدیا ملف
مه‌دیا ميديا میدیا میڈیا ورق وسائط وسیط پرونده پەڕگە ڤارئسگأر ھۆججەت ۋاسىتە ܠܦܦܐ ܡܝܕܝܐ މީޑިއާ ފައިލު ފައިލް
ߞߐߕߐ߮ ߟߊߛߋߢߊߥߙߍ किपा चित्र चित्रं चित्रम् पटिमा फ़ाइल फाइल फाईल फायल माध्यम माध्यमम् मिडिया मीडिया मेडिया
सञ्चिका চিত্র চিত্ৰ ছবি মাধ্যম মিডিয়া ਤਸਵੀਰ ਮੀਡੀਆ ચિત્ર દ્રશ્ય-શ્રાવ્ય_(મિડિયા) ଫାଇଲ ମାଧ୍ୟମ ஊடகம் படிமம்
దస్త్రం ఫైలు బొమ్మ మీడియా ಚಿತ್ರ ಫೈಲ್ ಮಾದ್ಯಮೊ ಮೀಡಿಯ ചി ചിത്രം പ്ര പ്രമാണം മീഡിയ ගොනුව මාධ්‍යය රූපය ภาพ สื่อ ไฟล์
ສື່ ສື່ອ ຮູບ ဖိုင် ဖုဲင် မီဒီယာ မဳဒဳယာ ဝှာင် သိုဝ်ႇၶၢဝ်ႇ ၾၢႆႇ მედია სურათი ფაილი ሜድያ ስዕል ፋይል មីឌា មេឌា រូបភាព
ឯកសារ ᥛᥤᥱ_ᥖᥤᥱ_ᥕᥣᥱ ᥜᥣᥭᥱ ᨼᩱᩃ᩺ ᩈᩨ᩵ ᱢᱤᱰᱤᱭᱟ ᱨᱮᱫ ⴰⴼⴰⵢⵍⵓ ⵎⵉⴷⵢⴰ ファイル メディア 图 图像 图片 圖 圖像 圖片 媒体
媒体文件 媒体档案 媒體 媒體文件 媒體檔案 文件 文檔 档 档案 檔 檔案 画像 ꠚꠣꠁꠟ ꠝꠤꠒꠤꠀ ꯃꯦꯗꯤꯌꯥ ꯐꯥꯏꯜ 그림 미디어 파일
𐍆𐌴𐌹𐌻𐌰 𑄜𑄭𑄣𑄴 𑄟𑄨𑄓𑄨𑄠
"""
_CATEGORIES: Final = """
abdeeling adà akotchajülee_sünülia akpaxwé bangsaan bekätakthook bhângsa buuri_buuri bólkur bɛn cat catadorie
catagóir categoreye categori categoria categorie category categorìa categoría categorîa categuria categurìa
catigurìa catègorie catégorie dalala duwalibun ekpo faʻahiga flocc flokkur gadâgorii gbuli gbúgbe grup horong
ikiciro jamii kaarangay kaban kadegorie kakuniza kalasi karolo kasasiwasiw kat kateggoría kategooria kategoreja
kategori kategoria kategorie kategorii kategoriija kategorija kategorio kategoriya kategoriye kategoriýa
kategory kategorya kategoryjo kategoría kategorî kategourii kateguorėjė kategòrëjô kategória kategōrija katejori
kateqoriya katigori katigoria katiguria katiguriya kattegerie kattejori katégori katégwi katõgooria katēggoría
kaurian kawan klad klass klesi kʼatʼegori loma luokka luī lūi lūi-pia̍t mkhakha māhele nakka neneuhcāyōtl
nkyekyem nkyekyεmu pinapapilipiliqan pubu roinn-seòrsa ronney rukuni rummad saachjrop saachjropp saachjrupp
sachgrubb sachjrop samiyachiy sanat setensele shopni shìnge snakun sokajy sulli sumut_atassuseq taggayt thể_loại
tipanictawin tispir tumbung turkum törkem tʼááłáhági_átʼéego uluhlu umkhakha umuce vibhag wàll zyuwaw_na ébéonọr
ñemohenda òtù κατηγορία κατηγορίαν акатегориа ангилал аңгылал гурӯҳ к кадегар кат категори категорие категорий
категориэ категория категорија категорія катеґория катеґорія катигорїꙗ катигорї катэгорыя кт оагӏат санат тоба
төркем төркөм янз әәшл կատեգորիա ստորոգութիւն קאַטעגאָריע קאטעגאריע קט קטגוריה תג תגית بؤلمه تصنيف تهر تۈر جرگه
دأسە دسته رج رده زمرو زمرہ زٲژ سانات ونکی وېشنيزه پ پۆل کاتݢوري گٹھ ܣܕܪܐ ޤިސްމު ߦߌߟߡߊ ज़ॉज़ पुचः बर्ग वर्ग वर्गः
विभाग श्र श्रे श्रेणी থাক বিষয়শ্রেণী শ্রেণী শ্ৰেণী ਸ਼੍ਰੇਣੀ શ્રે શ્રેણી ବିଭାଗ ଶ୍ରେଣୀ பகுப்பு వర్గం ವರ್ಗ ವರ್ಗೊ വ
വി വിഭാഗം വർഗ്ഗം ප්‍රවර්ගය หมวดหมู่ ໝວດ ကဏ္ဍ ပိူင်ထၢၼ်ႈ კატეგორია መደብ ከረርም ចំណាត់ក្រុម ចំណាត់ថ្នាក់ក្រុម
ចំនាត់ថ្នាក់ក្រុម ᥙᥫᥒ_ᥗᥣᥢ ᩉ᩠ᨾ᩠ᩅᨯᩉ᩠ᨾᩪ᩵ ᱛᱷᱚᱠ ẹ̀ka ọgbọn̄ ⴰⵙⵎⵉⵍ カテゴリ 分类 分類 类 類 ꠇꠦꠐꠣꠉꠞꠤ ꯃꯆꯥꯈꯥꯏꯕ 분류 𐌷𐌰𐌽𐍃𐌰
𑄇𑄬𑄑𑄉𑄧𑄢𑄨
"""


@pin_characters
def namespace(name: str) -> str:
    """A normalized namespace for comparisons: `_` is a blank; case and direction marks are removed.

    >>> namespace(" Tập_tin"), namespace("\\u200fKATEGORIE"), namespace("THỂ  LOẠI")
    ('tập tin', 'kategorie', 'thể loại')
    """
    plain = name.replace("_", " ").replace("\u200e", "").replace("\u200f", "")
    return " ".join(unicodedata.normalize("NFC", plain).casefold().split())


HIDDEN: Final = frozenset(map(namespace, (_FILES + _CATEGORIES).split()))
"""Normalized names of the namespaces whose links show no text: files, media and categories."""
