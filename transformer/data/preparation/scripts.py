"""Unicode scripts by name, such as ``Latin`` or ``Cyrillic``."""

import difflib

import regex

# What a mistyped name is compared with: the scripts in use today (Unicode Standard Annex 31, tables 5 and 7).
IN_USE = (
    "Adlam Arabic Armenian Balinese Bamum Batak Bengali Bopomofo Canadian_Aboriginal Chakma Cham Cherokee Cyrillic "
    "Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han Hangul Hanifi_Rohingya Hebrew Hiragana Javanese Kannada "
    "Katakana Kayah_Li Khmer Lao Latin Lepcha Limbu Lisu Malayalam Mandaic Meetei_Mayek Miao Mongolian Myanmar "
    "New_Tai_Lue Newa Nko Nyiakeng_Puachue_Hmong Ol_Chiki Oriya Osage Saurashtra Sinhala Sundanese Syloti_Nagri Syriac "
    "Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Vai Wancho Yi Jpan Kore"
)


def script_class(name: str) -> str:
    r"""A script as the inside of a character class of the ``regex`` library, such as ``\p{Script=Latin}``.

    Args:
        name: A name of Unicode's (``Latin``, ``Canadian_Aboriginal``) or its four-letter code (``Latn``, ``Cans``),
            in capitals or not; and the codes of ISO 15924 for writing systems of several scripts: ``Jpan`` (Han,
            Hiragana and Katakana), ``Kore`` (Hangul and Han).

    Raises:
        ValueError: There is no such script, or it is that of characters which all scripts share.
    """
    match name.lower():
        case "jpan":
            return r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}"
        case "kore":
            return r"\p{Script=Hangul}\p{Script=Han}"
        case "common" | "zyyy" | "inherited" | "zinh" | "qaai":
            raise ValueError(f"A script must have letters of its own, but {name} is what all scripts share.")
        case "unknown" | "zzzz":
            raise ValueError(f"A script must have letters of its own, but {name} has none.")
    if regex.fullmatch("[A-Za-z_]+", name):  # the library would look for the name within any other text
        wanted = rf"\p{{Script={name}}}"
        try:
            regex.compile(wanted)
        except regex.error:
            pass
        else:
            return wanted
    near = difflib.get_close_matches(name.title(), IN_USE.split(), n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    raise ValueError(f"A script must have a name of Unicode's, such as Latin, Cyrillic or Han, but is {name!r}{hint}.")
