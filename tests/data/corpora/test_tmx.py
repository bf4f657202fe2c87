"""Translation memories: which segments, which text of them, and attacks on whoever reads XML."""

import gzip
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from transformer.data.corpora.tmx import read_tmx


def memory(*units: str, document_type: str = "", encoding: str = "utf-8") -> bytes:
    declared = f'<?xml version="1.0" encoding="{encoding}"?>\n{document_type}\n'
    header = '<tmx version="1.4"><header creationtool="x" srclang="en"><note>no unit</note></header><body>\n'
    return (declared + header + "\n".join(units) + "\n</body></tmx>\n").encode(encoding)


def unit(**variants: str) -> str:
    texts = (f'<tuv xml:lang="{name.replace("_", "-")}"><seg>{text}</seg></tuv>' for name, text in variants.items())
    return f"<tu><prop type='x'>no text</prop>{''.join(texts)}</tu>"


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_one_row_for_each_unit(tmp_path: Path) -> None:
    units = [unit(de="eins", en="one", fr="un"), unit(en="two", de=""), unit(en="three"), "<tu/>", unit(de="f", en="5")]
    path = written(tmp_path / "a.tmx", memory(*units, document_type='<!DOCTYPE tmx SYSTEM "nowhere/tmx14.dtd">'))
    rows = [("one", "eins"), ("two", ""), ("three", None), (None, None), ("5", "f")]
    assert list(read_tmx(path, ("en", "de"))) == rows
    assert list(read_tmx(path, ("en", "de"), skip=3)) == rows[3:]
    assert list(read_tmx(path, ("de", "en"))) == [row[::-1] for row in rows]
    assert list(read_tmx(path, ("fr",))) == [("un",), (None,), (None,), (None,), (None,)]
    path = written(tmp_path / "a.tmx.gz", gzip.compress(memory(*units)))
    assert list(read_tmx(path, ("en", "de"))) == rows


@pytest.mark.parametrize(
    ("wanted", "found", "taken"),
    [
        ("en", "en", True),
        ("en", "EN", True),
        ("en", "en-US", True),
        ("en", "en_us", True),
        ("EN-us", "en-US", True),
        ("zh-Hant", "zh-Hant-TW", True),
        ("en-US", "en", False),
        ("en-US", "en-GB", False),
        ("en", "eng", False),
        ("en", "den", False),
        ("en", "", False),
    ],
)
@pytest.mark.parametrize("attribute", ["xml:lang", "lang"])
def test_a_language_takes_its_regions(tmp_path: Path, attribute: str, wanted: str, found: str, taken: bool) -> None:
    variants = f'<tuv {attribute}="{found}"><seg>text</seg></tuv><tuv><seg>no language</seg></tuv>'
    path = written(tmp_path / "a.tmx", memory(f"<tu>{variants}</tu>"))
    assert list(read_tmx(path, (wanted,))) == [("text" if taken else None,)]


def test_the_first_variant_of_a_language_counts(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tmx", memory(unit(en_GB="colour", en="color", en_US="other")))
    assert list(read_tmx(path, ("en", "en-US"))) == [("colour", "other")]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        (" a \n\tb ", " a \n\tb "),
        ("a &lt;b&gt; &amp;amp; &#228;&#x6f22;", "a <b> &amp; ä漢"),
        ("a <bpt i='1'>&lt;b></bpt>bold<ept i='1'>&lt;/b></ept> c", "a bold c"),
        ("a<ph x='1'/> b<ph>{1}<sub>footnote</sub></ph> c", "a b c"),
        ("a <it pos='begin'>[i]</it>b<ut>{x}</ut>", "a b"),
        ("a <hi type='b'>b <hi>c</hi><ph>x</ph> d</hi> e", "a b c d e"),
        ("a <mrk>b</mrk><x:y xmlns:x='z'>c</x:y>", "a bc"),
        ("a<!-- note -->b<?tool do?>c<![CDATA[ <d> & ]]>e", "abc <d> & e"),
        ("", ""),
    ],
)
def test_text_of_a_segment(tmp_path: Path, segment: str, text: str) -> None:
    path = written(tmp_path / "a.tmx", memory(unit(en=segment), unit(en="next")))
    assert list(read_tmx(path, ("en",))) == [(text,), ("next",)]


def test_namespaces_and_encodings(tmp_path: Path) -> None:
    content = memory(unit(en="größer 1"), unit(en="größer 2"))
    for name, changed in {
        "namespace": content.replace(b"<tmx ", b"<tmx xmlns='http://www.lisa.org/tmx14' "),
        "mark": b"\xef\xbb\xbf" + content,
        "latin": memory(unit(en="größer 1"), unit(en="größer 2"), encoding="iso-8859-1"),
        "utf16": memory(unit(en="größer 1"), unit(en="größer 2"), encoding="utf-16"),
        "bare": content.split(b"\n", 2)[2],
    }.items():
        assert list(read_tmx(written(tmp_path / name, changed), ("en",))) == [("größer 1",), ("größer 2",)], name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello\n", "', line 1: must be well-formed XML, but is not: Start tag expected, '<' not found."),
        (memory(unit(en="a"), unit(en="b & c")), "', line 5: must be well-formed XML, but is not: xmlParseEntityRef"),
        (memory(unit(en="a"), unit(en="<b>")), "', line 5: must be well-formed XML, but is not: Opening and ending"),
        (memory(unit(en="a"), unit(en="\0")), "', line 5: must be well-formed XML, but is not: "),
        (memory(unit(en="a"), unit(en="&#0;")), "', line 5: must be well-formed XML, but is not: "),
        (memory(unit(en="ä")).replace("ä".encode(), b"\xe4"), "', line 4: must be well-formed XML, but is not: "),
        (memory(unit(en="a"))[:-9], "', line 5: must be well-formed XML, but is not: "),
        (memory(unit(en="a")) + b"<tmx/>", "', line 6: must be well-formed XML, but is not: Extra content at the end"),
        (memory(unit(en="&x;")), "', line 4: must be well-formed XML, but is not: Entity 'x' not defined."),
        (b"<html/>", "' must be a translation memory, but its outermost element is not <tmx>."),
        (b"<a><tmx/><tu/></a>", "' must be a translation memory, but its outermost element is not <tmx>."),
        (
            memory(unit(en="&x;"), document_type="<!DOCTYPE tmx SYSTEM 'tmx14.dtd'>"),
            "', line 4: the XML entity &x; is not declared in the file; write what it stands for.",
        ),
        (
            memory(unit(en="a"), document_type="<!DOCTYPE tmx [<!ENTITY x 'y'><!ENTITY z 'y'>]>"),
            "' must not have XML entities of its own, but declares 'x', 'z'; write what they stand for.",
        ),
    ],
)
def test_what_is_no_memory_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path / "a.tmx", content)
    with pytest.raises(ValueError, match=rf"^(The file )?'.*a\.tmx{re.escape(message)}") as caught:
        list(read_tmx(path, ("en",)))
    assert re.fullmatch(r".*\.", str(caught.value))


def test_the_rows_before_a_fault_are_those_of_the_file(tmp_path: Path) -> None:
    units = [unit(en=f"{k} " + "x" * 1000, de=f"{k}") for k in range(200)]
    content = memory(*units)
    rows, path = [], written(tmp_path / "a.tmx", content[:-100])
    with pytest.raises(ValueError, match=r"line 203: must be well-formed"):
        rows.extend(read_tmx(path, ("en", "de")))
    assert len(rows) > 100
    assert rows == [(f"{k} " + "x" * 1000, f"{k}") for k in range(len(rows))]


LAUGHS = "".join(f"<!ENTITY l{k} '{f'&l{k - 1};' * 10}'>" for k in range(1, 30))
SECRET = "do not tell"
BOMBS = {
    "laughs": memory(unit(en="&l29;"), document_type=f"<!DOCTYPE tmx [<!ENTITY l0 'lol'>{LAUGHS}]>"),
    "attribute": memory("<tu x='&l29;'/>", document_type=f"<!DOCTYPE tmx [<!ENTITY l0 'lol'>{LAUGHS}]>"),
    "default": memory(
        "<tu/>",
        document_type=f"<!DOCTYPE tmx [<!ENTITY l0 'lol'>{LAUGHS}<!ATTLIST tu x CDATA '&l29;'>]>",
    ),
    "quadratic": memory(unit(en="&x;" * 100_000), document_type=f"<!DOCTYPE tmx [<!ENTITY x '{'y' * 100_000}'>]>"),
    "parameter": memory(
        unit(en="a"),
        document_type="<!DOCTYPE tmx [<!ENTITY % a '<!ENTITY x \"&#37;b;\">'><!ENTITY % b 'y'>%a;]>",
    ),
    "recursion": memory(unit(en="&x;"), document_type="<!DOCTYPE tmx [<!ENTITY x '&y;'><!ENTITY y '&x;'>]>"),
    "external": memory(unit(en="&x;"), document_type="<!DOCTYPE tmx [<!ENTITY x SYSTEM 'secret.txt'>]>"),
    "external parameter": memory(unit(en="&x;"), document_type="<!DOCTYPE tmx [<!ENTITY % x SYSTEM 'secret.dtd'>%x;]>"),
    "external type": memory(unit(en="&x;"), document_type="<!DOCTYPE tmx SYSTEM 'secret.dtd'>"),
    "inclusion": memory(
        unit(en="<x:include xmlns:x='http://www.w3.org/2001/XInclude' href='secret.txt' parse='text'/>")
    ),
    "depth": b"<tmx>" + b"<a>" * 1_000_000,
    "depth of segment": memory(unit(en="<hi>" * 100_000 + "</hi>" * 100_000)),
    "long text": memory(unit(en="x" * 30_000_000)),
    "long name": b"<tmx><" + b"x" * 30_000_000,
    "long comment": b"<tmx><!-- " + b"x" * 30_000_000,
}


@pytest.mark.skipif(sys.platform != "linux", reason="measures memory in Linux's own way")
def test_bombs_cost_nothing_and_nothing_outside_is_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "secret.dtd").write_text(f"<!ENTITY x '{SECRET}'>")
    for number, (name, content) in enumerate(BOMBS.items(), start=1):
        written(tmp_path / f"{number:02} {name}.tmx", content)
    units = "\n".join(unit(en=f"{k} " + "x" * 1000, de=f"{k}") for k in range(40_000))
    written(tmp_path / "00 large.tmx", memory(units))
    code = """
        import re, time
        from pathlib import Path
        from transformer.data.corpora.tmx import read_tmx

        def peak():  # KiB; ru_maxrss would start at that of the parent process
            return int(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1])

        for path in sorted(Path().glob("*.tmx")):
            Path("/proc/self/clear_refs").write_text("5")  # the peak starts at what there is now
            before, start, outcome = peak(), time.monotonic(), 0
            try:
                for row in read_tmx(path, ("en",)):
                    assert "do not tell" not in (row[0] or "")
                    outcome += 1
            except ValueError as error:
                assert str(path) in str(error) and str(error).endswith("."), error
                assert "do not tell" not in str(error)
                outcome = "refused"
            print(path.stem[3:], outcome, (peak() - before) // 1024, round(time.monotonic() - start, 1), sep="|")
        """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, timeout=60).stdout
    found = {name: (outcome, int(mib), float(s)) for name, outcome, mib, s in (x.split("|") for x in out.splitlines())}
    assert found.keys() == {*BOMBS, "large"}
    assert {name: outcome for name, (outcome, _, _) in found.items() if outcome != "refused"} == {
        "inclusion": "1",
        "large": "40000",
    }
    assert all(mib < 60 for _, mib, _ in found.values()), found
    assert found["large"][1] < 10, found  # first of all; the file has 43 MB
    assert all(seconds < 5 for name, (_, _, seconds) in found.items() if name != "large"), found
