"""Texts for tests: real prose and code that every Python carries, several scripts, generated Unicode."""

import hashlib
import inspect
import json.decoder
import random
import string
import sys
import textwrap
import unicodedata
from functools import cache
from pydoc_data.topics import topics

from tokenizer.corpus import embedded

CONTRACTIONS = ["'s", "'S", "'t", "'RE", "'re", "'Ve", "'m", "'ll", "'LL", "'d", "'x", "’s", "’ll", "'ſ", "'ſs", "'"]
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\v", "\f", "\x1c", "\x85", "\xa0"]
SPACES += ["\u1680", "\u2003", "\u2028", "\u2029", "\u202f", "\u3000", "\u200b", "\ufeff", "\u180e"]
EMOJI = ["🙂", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "1️⃣", "☎️", "‍", "🧑🏿‍🚀", "❤️"]
MARKS = ["e\u0301", "\u0301", "n\u0303\u0323", "ก็", "ि", "각", "각".encode().decode(), "각", "ﬃ", "ǅ", "ß", "ſ"]
WORDS = ["hello", "World", "camelCase", "HTTPServer", "iPhone", "x", "naïve", "Straße", "ÉCOLE", "ǆungla", "ʰa"]
NUMBERS = ["1", "12", "123", "1234567", "3.14", "٣٤٥", "Ⅷ", "½", "①②③④", "1,000,000", "0x1F", "10⁶"]
PUNCTUATION = ["!", "...", "?!", "//", "/", "->", "_", "__init__", "#", "```", '": "', ": ", "—", "。", "¿", "$€", "=="]
FRAGMENTS = [CONTRACTIONS, SPACES, SPACES, EMOJI, MARKS, WORDS, WORDS, NUMBERS, PUNCTUATION]

SCRIPTS = {
    "Greek": "Καλημέρα κόσμε, τι κάνεις; Ένα, δύο, τρία, τέσσερα, πέντε. Όλοι οι άνθρωποι γεννιούνται ελεύθεροι. ΑΘΗΝΑ",
    "Cyrillic": "Доброе утро, мир! Как дела? Один, два, три, четыре, пять. Все люди рождаются свободными. МОСКВА 2026",
    "Arabic": "صباح الخير يا عالم، كيف حالك؟ واحد، اثنان، ثلاثة، أربعة، خمسة. ١٢٣٤٥ مُحَمَّد ـــ",
    "Hebrew": 'בוקר טוב עולם, מה שלומך? אחת, שתיים, שלוש, ארבע, חמש. צה"ל שָׁלוֹם',
    "Devanagari": "सुप्रभात दुनिया, आप कैसे हैं? एक, दो, तीन, चार, पाँच। १२३४५ हिन्दी में लिखा हुआ वाक्य",
    "Thai": "สวัสดีชาวโลก สบายดีไหม หนึ่ง สอง สาม สี่ ห้า ๑๒๓๔๕ ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "Han": "早上好，世界！你好吗？一、二、三、四、五。人人生而自由，在尊严和权利上一律平等。二〇二六年",
    "Kana": "おはよう、せかい。げんきですか？いち、に、さん、し、ご。コンピューターとカタカナ。ｶﾀｶﾅ 日本語の文章です",
    "Hangul": "좋은 아침이에요, 세상! 잘 지내요? 하나, 둘, 셋, 넷, 다섯. 모든 사람은 태어날 때부터 자유롭다. ㅋㅋㅋ",
    "Armenian": "Բարի լույս, աշխարհ։ Ինչպե՞ս ես։ Մեկ, երկու, երեք, չորս, հինգ։ ՀԱՅԵՐԵՆ",
    "Georgian": "დილა მშვიდობისა, მსოფლიო! როგორ ხარ? ერთი, ორი, სამი, ოთხი, ხუთი. ᲗᲑᲘᲚᲘᲡᲘ",
    "Tamil": "காலை வணக்கம் உலகமே, எப்படி இருக்கிறாய்? ஒன்று, இரண்டு, மூன்று, நான்கு, ஐந்து. ௧௨௩",
    "Bengali": "সুপ্রভাত পৃথিবী, কেমন আছো? এক, দুই, তিন, চার, পাঁচ। ১২৩৪৫",
    "Ethiopic": "እንደምን አደርክ ዓለም፣ ደህና ነህ? አንድ፣ ሁለት፣ ሦስት፣ አራት፣ አምስት።",
    "Vietnamese": "Chào buổi sáng thế giới, bạn có khỏe không? Một, hai, ba, bốn, năm. ĐƯỜNG PHỐ",
    "Turkish": "Günaydın dünya, nasılsın? Bir, iki, üç, dört, beş. İSTANBUL'un ılık ışığı, I'M DİYARBAKIR",
}


@cache
def characters_by_category():
    """Every assigned character but the surrogates, by general category (of this Python's Unicode)."""
    found: dict[str, list[str]] = {}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category not in ("Cs", "Cn"):
            found.setdefault(category, []).append(chr(code))
    return found


@cache
def generated(seed, pieces=400):
    """Text of words, spaces, contractions, emoji, marks and characters of every general category."""
    choose = random.Random(seed)
    categories = sorted(characters_by_category().items())
    parts = []
    for i in range(pieces):
        if choose.random() < 0.35:
            _, members = categories[i % len(categories)]
            parts.append("".join(choose.choices(members, k=choose.randint(1, 3))))
        elif choose.random() < 0.1:
            parts.append("".join(choose.choices(string.printable, k=choose.randint(1, 6))))
        else:
            parts.append(choose.choice(choose.choice(FRAGMENTS)))
    return "".join(parts)


@cache
def prose():
    """Technical English: the topics of Python's documentation, about 0.6 MB."""
    return [topics[name] for name in sorted(topics)]


@cache
def code():
    """Source code of the standard library."""
    return inspect.getsource(json.decoder) + inspect.getsource(textwrap)


@cache
def english():
    """English of the embedded corpus: about 300 kB to train on, and 100 kB of other services, held out."""
    sides: tuple[list[str], list[str]] = ([], [])
    room = [300_000, 100_000]
    for service, source in embedded._services():  # its first documents; `documents` parses all code before
        if max(room) <= 0:
            break
        side = hashlib.sha256(f"english/{service}".encode()).digest()[0] // 192
        for text in source.pieces[service] if source.n_bytes >= embedded.LEAST_BYTES else ():
            if room[side] > 0:
                sides[side].append(text)
                room[side] -= len(text)
    return sides


def sample(n_bytes):
    """Documents for training: English, code, every script and generated Unicode, about this size."""
    documents = [code()[: n_bytes // 8], *SCRIPTS.values(), generated(1, 300), "aaaaaaaaaa " * 5, "-" * 77]
    room = n_bytes - sum(len(document.encode()) for document in documents)
    for document in english()[0]:
        if room <= 0:
            break
        documents.append(document[:room])
        room -= len(document)
    return documents


def various():
    """Texts on which encoders and scanners are compared: short, odd, and real."""
    odd = ["", " ", "\n", "a", "'", "  ", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", " " * 70, "\n" * 9, "1" * 40]
    odd += ["🙂" * 20, "it's  IT'S\r\n\r\n  don't", "\u0301", "a\u0301\u0301 b", "x" * 5000]
    return [*odd, *SCRIPTS.values(), code()[:6000], *(generated(seed) for seed in range(2, 8))]
