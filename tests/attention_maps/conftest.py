"""A font made for the tests, so that they say the same whatever fonts a machine has."""

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen


@pytest.fixture
def make_font(tmp_path):
    """Make a font file: ``make_font(name, characters, empty=...)``; the ``empty`` ones have glyphs without outlines."""

    def make(name, characters, empty=""):
        order = [".notdef", *(f"u{ord(each):04X}" for each in [*characters, *empty])]
        builder = FontBuilder(1000, isTTF=True)
        builder.setupGlyphOrder(order)
        builder.setupCharacterMap({ord(each): f"u{ord(each):04X}" for each in [*characters, *empty]})
        blank, square = TTGlyphPen(None), TTGlyphPen(None)
        square.moveTo((100, 0))
        for corner in ((100, 800), (900, 800), (900, 0)):
            square.lineTo(corner)
        square.closePath()
        square_glyph, blank_glyph = square.glyph(), blank.glyph()
        blanks = {".notdef", *(f"u{ord(each):04X}" for each in empty)}
        builder.setupGlyf({glyph: blank_glyph if glyph in blanks else square_glyph for glyph in order})
        builder.setupHorizontalMetrics(dict.fromkeys(order, (1000, 0)))
        builder.setupHorizontalHeader(ascent=800, descent=-200)
        builder.setupNameTable({"familyName": name, "styleName": "Regular"})
        builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
        builder.setupPost()
        path = tmp_path / f"{name}.ttf"
        builder.save(path)
        return path

    return make


@pytest.fixture
def installed(monkeypatch):
    """Set which fonts the system has: ``installed(path, ...)``; at first none."""
    from transformer.attention_maps import fonts

    def install(*paths):
        monkeypatch.setattr(fonts, "findSystemFonts", lambda: [str(path) for path in paths])

    install()
    return install
