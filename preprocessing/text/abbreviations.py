# ruff: noqa: RUF001  # Cyrillic letters look like Latin ones
"""Language data for the sentence splitter: abbreviations, ordinals, and words that identify a language.

A lower-case letter after a full stop never begins a sentence. So only abbreviations that occur before capitals and
digits are listed, except those that often end a sentence (etc., usw., itd.).
"""

from typing import Final

# Abbreviations that never end a sentence, for text of any language: none is a word of another language.
ANYWHERE: Final = {
    "en": """
        Adm Brig Bros Capt Cmdr Co Col Corp DR Dr Eq Eqs Esq Fig Figs Fr Ft Gen Gov Hon Inc Jr Lt Ltd MR MRS Maj Messrs
        Mlle Mme Mr Mrs Ms Mt Mts Prof Rep Rev ST Sec Sen Sgt Sr St Ste Vol Vols al approx ca cf e.g eg eq eqs esp fig
        figs i.e resp sec viz vol vols vs
        """,
    "de": """
        Abb Abs Abt Anm Aufl Bd Bde Bhf Dipl Evtl Fa Frl Hbf Hg Hrsg Inh Ing Jhd Kap Lic Mag Mio Mrd Nr Nrn Pfd Str
        Tel Univ Verf Verl Vgl Wwe bspw bzgl bzw dgl ebd ehem eigtl einschl entspr evtl exkl gegr gesch gest ggf ggfs
        hrsg inkl insb insbes lfd sog verh versch vgl vorm zit zzgl zzt österr u.ä o.ä d.h z.B i.d.R
        """,
    "fr": "MM Mmes mme mlle Mlles Mgr Cie Stes Sts Éd éd éds coll trad boul rééd étél p.ex",
    "es": """
        Arq Avda Cnel Cta Ctra Cía Depto Dpto Dra Dras Dres Doñ Dña EE Excma Excmo Gral Ilma Ilmo Ltda
        Mons Profa Pza Sra Sras Sres Srta Sto Sta Tte Ud Uds Vd Vds aprox dra
        sra sres srta ud uds núm núms ppág pág págs
        """,
    "it": """
        Avv Dott Dott.ssa Egr Geom Gent Ill.mo Prof.ssa Rag Sig Sig.na Sig.ra Sigg Spett avv cfr dott dott.ssa ediz pag
        pagg sig sig.ra
        """,
    "pt": "Drs Eng Exma Exmo Pra Profs Srs nº op obs sra exmo",
    "nl": "Dhr Drs Mevr bijv blz dhr drs evt incl excl jhr mevr nrs afb vgl zgn o.a m.b.t i.v.m t.a.v d.w.z",
    "pl": """
        Ks Pl Por Prof Ul por abp bp doc godz gen hab ks kpt ldz lic mgr mjr np nt okł oprac ośw pkt pow
        ppor ppłk prof płk rozdz ss str św tłum tj tzn tzw ul woj wsch wyd zach zob zw inż
        """,
    "ru": """
        Акад Проф См Ср акад
        англ ген гл гр г-жа г-н
        дер доц д-р изд инж исп
        итал канд кап лат лейт
        напр нем обл полк подп
        пос пр просп проф ред
        р-н св см соч табл тов
        ул фр
        """,
    "cs": """
        JUDr MUDr Např PhDr Prof RNDr cca csc doc mgr mjr např nám násl obr odst plk popiř por
        prof překl sv tab tj tzn tzv vyd zejm č čísl
        """,
    "el": "κ κα κκ Δρ",
    "hi": "डॉ पं प्रो डा",
    "bn": "মো ডা মোসা",
}
# Abbreviations that do not end a sentence before a digit.
BEFORE_NUMBERS: Final = {
    "en": """
        Apr Art Aug Ch Dec Feb Jan Jul Jun Mar No Nos Nov Oct Sep Sept art c ch no nos p par pp ver
        """,
    "de": "Bl Jan Jän Mrz Okt Dez S Tit V Z Ziff",
    "fr": "chap janv juil nov oct sept déc tom",
    "es": "cap ene abr ago dic n t",
    "it": "artt gen mag giu lug ago set ott dic tav",
    "pt": "fev mai out dez n",
    "nl": "mrt mei okt nr",
    "pl": "nr poz pt r rys tab t tom",
    "ru": """
        в вв г гг млн млрд п пп
        рис с ст стр т т.д ч род ум
        """,
    "cs": "nr odd § str",
}
# Abbreviations that are words, or may end a sentence, in other languages: only for text in this language.
ONLY_IN: Final = {
    "de": "Art Betr Bez Ges Jan Reg Red Sept Okt Dez Ca Std bes geb gem lat franz engl griech hist jap kath med",
    "fr": "Me ann art av dir env ex fig hab int s.d tel",
    "es": "Av Lic Ing Prov dr sr prof art ca cap dep ed ej etc fig gr lib tel vol",
    "it": "Arch On ing prof Cap art cap ecc es on sec sez tel vol",
    "pt": "Av Ca Cia dr sr prof Lda Ltda Ten art cap cx ed etc ex lim pág tel vol",
    "nl": "bv ds dr ing ir mr nl prof st max min art ed ong plm resp",
    "pl": "al fr godz im ang niem łac fran ros rów red ok os pl min maks wz zm ur m.in",
    "ru": "им пер пл ср ур зав мин",
    "cs": "ing hl kap lat nar nem ob obč rák roz sl st str ul zemř zn uz",
}
# Languages in which one or two digits with a full stop are taken as an ordinal ("3. Oktober"), not as an end.
ORDINALS: Final = "bs cs da de et fi hr hu lv nb nn no sk sl sr tr"

# Scripts without sentence marks: language code -> name and characters, as the inside of a character set.
WITHOUT_MARKS: Final = {
    "th": ("Thai", "\u0e00-\u0e7f"),
    "lo": ("Lao", "\u0e80-\u0eff"),
    "km": ("Khmer", "\u1780-\u17ff"),
}

# Frequent words, from which the language of a text is guessed if it is not given.
COMMON_WORDS: Final = {
    "en": "the of and to in is was that for it with as on by he at from his be are this an which or not have had",
    "bs": "je i u se na da za su od s koji kao bio nije ili iz te također",
    "cs": "je se na v a že byl s z do jeho ve pro jako který podle jsou jsem tak nebo která by bylo",
    "da": "og i er af det en til på den med for at de som ikke der har et blev fra",
    "de": "der die und das ist in den mit von zu dem ein eine nicht auf war für des sich im auch als wurde sind ich es",
    "es": "de la que el en y los se del las un por con una su para es al lo como más pero fue",
    "et": "ja on ei see oli et ta kui ka aga mis oma või kõik selle",
    "fi": "ja on ei se oli että hän mutta kun myös joka ovat tai sen ole",
    "fr": "de la le et les des en un une du est que dans qui par pour il au sur plus pas ce avec sont elle été",
    "hu": "a az és hogy nem is egy volt meg de ez el ki csak mint vagy lett",
    "it": "di e il la che in un per una non del è con i le si da della sono al ha anche nel gli",
    "lv": "un ir no par ar ka uz bija tā kā viņš gadā tas arī",
    "nl": "de van het een en in is op dat te met zijn voor niet aan die er door werd ook als bij maar",
    "no": "og i er av det en til på den med for at som ikke har ble et fra var han",
    "pl": "w i na z się do nie jest że to o po od za jak przez który ale oraz dla był jego co są",
    "pt": "de a o que e do da em um para com não uma os no se na por mais as dos foi é ao como",
    "ru": """
        в и на не с что по он это
        из для как был от к о за
        его но до были при или
        """,
    "sk": "a je sa na v že bol s do z jeho vo pre ako ktorý podľa sú som alebo bola",
    "sl": "je in v na se za so da s z ki po ni bil kot tudi pa od ali leta",
    "sr": """
        је и у се на да за су од
        који био године као
        """,
    "sv": "och i att det som en på är av för med till den har de inte om ett var från han",
    "tr": "ve bir bu da de için ile olarak olan gibi daha çok ne kadar sonra oldu",
}
