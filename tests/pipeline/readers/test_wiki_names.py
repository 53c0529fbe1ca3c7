import pytest

from pipeline.readers.wiki_names import HIDDEN, namespace


@pytest.mark.parametrize(
    "names",
    [
        "File Image Media Category",
        "Datei Bild Kategorie",
        "Fichier Catégorie",
        "Fil Kategori",
        "Bestand Afbeelding Categorie",
        "Archivo Imagen Categoría CAT",
        "Файл Изображение Категория Зображення Категорія",
        "Immagine Categoria",
        "ファイル 画像 カテゴリ",
        "文件 档案 檔案 檔 图像 圖像 分类 分類",
        "Tập_tin Hình Thể_loại",
        "ملف صورة تصنيف",
        "Paypay Fayl Kaarangay Payl Imahen Kategoriya",
        "Ficheiro Arquivo Imagem",
        "پرونده تصویر رده",
        "Fitxer Imatge Berkas Gambar",
        "파일 그림 분류",
        "Датотека Слика Категорија",
        "Soubor Obrázok Fájl Kép Kategória",
        "Dosya Resim KAT Tiedosto Kuva Luokka",
        "Αρχείο Εικόνα Κατηγορία",
        "קובץ תמונה קטגוריה",
        "Պատկեր Կատեգորիա",
        "चित्र श्रेणी চিত্র বিষয়শ্রেণী படிமம் பகுப்பு ไฟล์ หมวดหมู่",
    ],
)
def test_the_hidden_namespaces_of_large_wikis_are_known(names: str) -> None:
    assert [name for name in names.split() if namespace(name) not in HIDDEN] == []


def test_hidden_names_are_stored_in_normalized_form() -> None:
    assert all(namespace(name) == name for name in HIDDEN)
    assert not any(mark in name for name in HIDDEN for mark in ":|[]_")


def test_links_of_other_namespaces_are_shown() -> None:
    others = "Talk User Wikipedia Template Help Portal Diskussion Benutzer Шаблон 利用者 en de Category_talk"
    assert [name for name in others.split() if namespace(name) in HIDDEN] == []
