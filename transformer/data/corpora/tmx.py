"""Rows from translation memories (TMX 1.4): one for each translation unit."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from lxml import etree

from transformer.data.corpora.opening import open_bytes
from transformer.data.corpora.readers import listing
from transformer.data.corpora.rows import Row

_NATIVE_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})  # of the format a text came from; no text
_CHUNK = 1 << 16
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


def read_tmx(path: Path, languages: Sequence[str], skip: int = 0) -> Iterator[Row]:
    """Segments of translation units in the given languages; None where a unit lacks one. White space is kept.

    The first variant of a language counts. Inline elements are left out, but the text in them is kept where it is text
    (``<hi>`` and whatever is no native code); ``<bpt>``, ``<ept>``, ``<ph>``, ``<it>``, ``<ut>`` with all in them are
    not. Units are forgotten once read, so memory does not grow with the file. Nothing outside the file is ever read: an
    external document type is ignored, and entities of the file's own are refused.

    Args:
        path: the file, in any encoding that its XML declaration names.
        languages: language codes, upper and lower case alike. ``en`` also takes ``en-US``, but not the other way.
        skip: so many units are passed over. They are parsed all the same.

    Raises:
        ValueError: As :func:`~.opening.open_bytes`, or the file is no well-formed XML, no translation
            memory, or has entities of its own.
    """
    wanted = [language.lower().replace("_", "-") for language in languages]
    for unit in islice(_units(path), skip, None):
        variants = [(_language(variant), variant) for variant in _children(unit, "tuv")]
        yield tuple(
            next((_segment(variant, path) for found, variant in variants if _takes(language, found)), None)
            for language in wanted
        )


def _units(path: Path) -> Iterator[etree._Element]:
    """Every unit, emptied when the next one is asked for."""
    parser = etree.XMLPullParser(
        events=("start", "end"),
        tag=("{*}tmx", "{*}tu"),
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    is_memory = False
    with open_bytes(path) as stream:
        if not stream.peek(1):  # type: ignore[attr-defined]
            raise ValueError(f"The file {str(path)!r} is empty.")
        while chunk := stream.read(_CHUNK):
            _feed(parser, chunk, path)
            for event, element in parser.read_events():
                if event == "start" and element.getparent() is None and _name(element) == "tmx":
                    is_memory = True
                    _refuse_entities(element, path)
                elif event == "end" and _name(element) == "tu":
                    if not is_memory:
                        break
                    yield element
                    element.clear()
                    while element.getprevious() is not None:
                        del element.getparent()[0]
        _feed(parser, None, path)
    if not is_memory:
        raise ValueError(
            f"The file {str(path)!r} must be a translation memory, but its outermost element is not <tmx>."
        )


def _feed(parser: etree.XMLPullParser, chunk: bytes | None, path: Path) -> None:
    try:
        if chunk is None:
            parser.close()
        else:
            parser.feed(chunk)
    except etree.XMLSyntaxError as error:
        log = parser.feed_error_log.filter_from_errors()  # the error's own log has the faults of earlier files, too
        line, message = (log[0].line, log[0].message.strip()) if len(log) else (1, error.msg)
        raise ValueError(f"{str(path)!r}, line {line}: must be well-formed XML, but is not: {message}.") from None


def _refuse_entities(root: etree._Element, path: Path) -> None:
    document_type = root.getroottree().docinfo.internalDTD
    entities = [] if document_type is None else [entity.name for entity in document_type.iterentities()]
    if entities:
        raise ValueError(
            f"The file {str(path)!r} must not have XML entities of its own, but declares {listing(entities)}; "
            "write what they stand for."
        )


def _segment(variant: etree._Element, path: Path) -> str | None:
    segment = next(_children(variant, "seg"), None)
    return None if segment is None else "".join(_pieces(segment, path))


def _pieces(element: etree._Element, path: Path) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        if child.tag is etree.Entity:
            raise ValueError(
                f"{str(path)!r}, line {element.sourceline}: the XML entity {child.text} is not declared in the file; "
                "write what it stands for."
            )
        if _name(child) not in _NATIVE_CODES:
            yield from _pieces(child, path)
        yield child.tail or ""


def _children(element: etree._Element, name: str) -> Iterator[etree._Element]:
    return (child for child in element if child.tag is not etree.Entity and _name(child) == name)


def _name(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _language(variant: etree._Element) -> str:
    return str(variant.get(_LANGUAGE) or variant.get("lang") or "").lower().replace("_", "-")


def _takes(wanted: str, found: str) -> bool:
    return found == wanted or found.startswith(f"{wanted}-")
