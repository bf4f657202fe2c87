"""Which installed fonts have the characters of a text: matplotlib draws an empty box where none does."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager, get_font
from matplotlib.ft2font import FT2Font

OWN_FONT = "DejaVu Sans"  # comes with matplotlib
# Parts of the names of fonts with very many characters, and of those that are another's variants or show no characters.
LIKELY = ("cjk", "sourcehan", "wqy", "droidsansfallback", "pingfang", "hiragino", "yahei", "arialunicode", "unifont")
UNLIKELY = ("bold", "italic", "oblique", "mono", "serif", "light", "thin", "black", "condensed")
PLACEHOLDERS = "lastresort"


class Fonts(NamedTuple):
    """What a text can be drawn with.

    Attributes:
        families: names for matplotlib, each for what those before it lack.
        missing: characters that no font has.
    """

    families: tuple[str, ...]
    missing: frozenset[str]

    def of_size(self, points: float) -> FontProperties:
        """The same as matplotlib wants it."""
        return FontProperties(family=list(self.families), size=points)


def fonts_for(characters: Collection[str], files: Sequence[Path] = ()) -> Fonts:
    """Find fonts for all characters, among those given, matplotlib's own and the system's.

    Args:
        characters: what is to be drawn.
        files: fonts that are asked first.

    Raises:
        ValueError: one of the files is no font that can be drawn.
    """
    families: list[str] = []
    missing = frozenset(characters)
    for file in files:
        try:
            family = _register(str(file))
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{file} must be a font (TTF, OTF or TTC), but cannot be read: {error}.") from error
        families.append(family)
        missing -= _drawable(family, missing)
    families.append(OWN_FONT)
    missing -= _drawable(OWN_FONT, missing)
    for path in _system_fonts() if missing else ():
        try:
            # The family's regular style is drawn, whichever file it was found by.
            found = _drawable(_register(path), missing) if _has_any(FT2Font(path), missing) else frozenset()
        except (OSError, RuntimeError):  # broken, or of a kind that cannot be drawn
            continue
        if found:
            families.append(_register(path))
            missing -= found
        if not missing:
            break
    return Fonts(tuple(families), missing)


def _system_fonts() -> list[str]:
    """Files of fonts, likely ones first; not matplotlib's own list, which it may have made before they were there."""

    def rank(path: str) -> tuple[bool, int, str]:
        name = Path(path).name.lower().replace("-", "").replace("_", "")
        return not any(part in name for part in LIKELY), sum(part in name for part in UNLIKELY), path

    return sorted((path for path in findSystemFonts() if PLACEHOLDERS not in path.lower()), key=rank)


def _register(path: str) -> str:
    """The family of a font, which matplotlib knows afterwards."""
    if all(entry.fname != path for entry in fontManager.ttflist):
        fontManager.addfont(path)
    return FT2Font(path).family_name


def _has_any(font: FT2Font, characters: Collection[str]) -> bool:
    return any(font.get_char_index(ord(character)) != 0 for character in characters)


def _drawable(family: str, characters: Collection[str]) -> frozenset[str]:
    """Those of the characters that a family has an outline for; fonts of pictures, such as emoji, have none."""
    font = get_font(findfont(FontProperties(family=family)))
    font.set_size(12, 72)
    return frozenset(each for each in characters if _has_outline(font, each))


def _has_outline(font: FT2Font, character: str) -> bool:
    if font.get_char_index(ord(character)) == 0:
        return False
    if character.isspace():
        return True
    font.load_char(ord(character))
    vertices, _ = font.get_path()
    return len(vertices) > 0
