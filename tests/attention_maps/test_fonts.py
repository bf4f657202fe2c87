"""Fonts for every script that there is one for, and no empty boxes for the others."""

import re

import pytest

from transformer.attention_maps.fonts import fonts_for
from transformer.attention_maps.pictures import missing_glyphs


def test_matplotlibs_own_font_has_what_labels_need(installed):
    assert fonts_for("aäßЖ␣⏎⇥◌…→←[1/2]") == (("DejaVu Sans",), frozenset())


def test_what_no_font_has_is_missing(installed):
    fonts = fonts_for("a你好")
    assert fonts == (("DejaVu Sans",), frozenset("你好"))
    message = missing_glyphs(fonts)
    assert message is not None
    assert message.startswith(
        "no installed font has 你 好; tokens with them are labelled by their places and code points."
    )
    assert "apt install fonts-noto-cjk" in message
    assert missing_glyphs(fonts_for("a")) is None


def test_a_font_that_is_installed_serves_for_what_the_others_lack(installed, make_font):
    """matplotlib may have listed the fonts before it was there."""
    installed(*(make_font(name, has) for name, has in (("A", "xyz"), ("B", "a你"), ("C", "你好"), ("D", "你好"))))
    assert fonts_for("a你好") == (("DejaVu Sans", "B", "C"), frozenset())


def test_given_fonts_come_first(installed, make_font):
    given, other = make_font("Given", "a你"), make_font("Installed", "你好")
    installed(other)
    assert fonts_for("a你", [given]) == (("Given", "DejaVu Sans"), frozenset())
    assert fonts_for("a你好", [given]) == (("Given", "DejaVu Sans", "Installed"), frozenset())


def test_a_font_of_placeholders_or_without_outlines_has_no_character(installed, make_font):
    installed(make_font("LastResort", "你"), make_font("Emoji", "b", empty="你"))
    assert fonts_for("你") == (("DejaVu Sans",), frozenset("你"))


def test_a_broken_installed_font_is_passed_over(installed, make_font, tmp_path):
    broken = tmp_path / "cjk.ttf"  # likely, so it is asked first
    broken.write_bytes(b"no font")
    installed(broken, make_font("Whole", "你"))
    assert fonts_for("你") == (("DejaVu Sans", "Whole"), frozenset())


def test_a_given_file_must_be_a_font(installed, tmp_path):
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    for file in (broken, tmp_path / "none.ttf"):
        with pytest.raises(
            ValueError, match=rf"^{re.escape(str(file))} must be a font \(TTF, OTF or TTC\), but cannot"
        ):
            fonts_for("", [file])
