"""Inputs for programs: texts, tables, images, sounds and code, each made from a name, a size and nothing else.

    content("prose", 100_000)              # bytes, the same on every machine
    content("prose", 100_000, "bz2")       # the same, compressed

A size counts what the kind consists of: bytes of text, pixels, samples, statements. It is only roughly kept.
"""

import bz2
import lzma
import math
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import TypeAlias

from benchmarks import code_inputs

_Make: TypeAlias = Callable[[random.Random, int], "str | bytes"]

_LZIP_DICTIONARY = 23
"""Base 2 logarithm of bytes."""


def content(kind: str, size: int, compression: str = "") -> bytes:
    """The input of that kind, in bytes, compressed as `bz2`, `xz` or `lz`; raises KeyError if there is no such kind."""
    # A seed that is a text does not depend on the hash seed of the process.
    made = KINDS[kind](random.Random(f"{kind} {size}"), size)
    plain = made.encode() if isinstance(made, str) else made
    return COMPRESSIONS[compression](plain)


def _prose(rng: random.Random, size: int) -> str:
    """Sentences of a made-up language whose frequent words are short."""
    words = _vocabulary(rng, 4000)
    text = []
    length = 0
    while length < size:
        sentence = " ".join(_pick(rng, words) for _ in range(rng.randrange(4, 24))).capitalize()
        text.append(sentence + rng.choice(". . . ? !".split()) + ("\n\n" if rng.random() < 0.15 else " "))
        length += len(text[-1])
    return "".join(text)


def _log(rng: random.Random, size: int) -> str:
    """What a server logs."""
    paths = ["/".join(["", *rng.sample(_vocabulary(rng, 60), 3)]) for _ in range(200)]
    lines = []
    for number in range(size // 110):
        second, address = number // 7, ".".join(str(rng.randrange(256)) for _ in range(4))
        lines.append(
            f"{address} - - [28/Nov/2026:{second // 3600 % 24:02}:{second // 60 % 60:02}:{second % 60:02} +0000] "
            f'"{rng.choice(["GET", "GET", "GET", "POST"])} {_pick(rng, paths)} HTTP/1.1" '
            f"{_pick(rng, ['200', '304', '404', '500'])} {rng.randrange(100, 90000)} {rng.random():.3f}\n"
        )
    return "".join(lines)


def _binary_records(rng: random.Random, size: int) -> bytes:
    """A table of measurements: counters, values that change slowly, some noise."""
    level, parts = 1000.0, []
    for number in range(size // 20):
        level += rng.gauss(0, 3)
        parts.append(struct.pack("<IhHfQ", number, int(level), rng.randrange(16), level / 7, number * 1_000_003))
    return b"".join(parts)


def _xml_records(rng: random.Random, size: int) -> str:
    """A flat list with attributes."""
    words = _vocabulary(rng, 500)
    rows = (
        f'  <item id="{number}" price="{rng.randrange(10**5) / 100:.2f}" stock="{rng.randrange(100)}">'
        f"<name>{_pick(rng, words)} {_pick(rng, words)}</name><note/></item>\n"
        for number in range(size // 90)
    )
    return "".join(['<?xml version="1.0" encoding="UTF-8"?>\n<items>\n', *rows, "</items>\n"])


def _xml_document(rng: random.Random, size: int) -> str:
    """Nested text with a DTD, entities, namespaces, comments, CDATA and characters beyond ASCII."""
    words = _vocabulary(rng, 800)

    def inline(depth: int) -> str:
        text = " ".join(_pick(rng, words) for _ in range(rng.randrange(3, 12)))
        choice = rng.randrange(8)
        if choice < 4 and depth:
            return f"{text} <t:{'bi'[choice % 2]} xml:lang='x{choice}'>{inline(depth - 1)}</t:{'bi'[choice % 2]}>"
        return (
            text
            + (f" &who; &lt;&#{rng.randrange(0xE0, 0x17F)};&gt; ü漢", "<!-- a > b -->", "<![CDATA[ <&> ]]>", "")[
                choice % 4
            ]
        )

    parts = [
        '<?xml version="1.0"?>\n<!DOCTYPE d [<!ENTITY who "nobody &amp; everybody">'
        '<!ATTLIST p kind CDATA "plain">]>\n<d xmlns="urn:d" xmlns:t="urn:t">\n'
    ]
    length = 0
    while length < size:
        parts.append(f"<section title='{_pick(rng, words)}'><?mark {_pick(rng, words)}?>\n")
        parts += [f"<p>{inline(3)}</p>\n" for _ in range(rng.randrange(1, 9))]
        parts.append("</section>\n")
        length = sum(map(len, parts)) if len(parts) < 100 else length + 600
    return "".join([*parts, "</d>\n"])


def _html_article(rng: random.Random, size: int) -> str:
    """Headings and paragraphs."""
    words = _vocabulary(rng, 900)
    return _html(
        f"<h2>{_pick(rng, words)}</h2>\n"
        + "".join(
            f"<p>{_words(rng, words, 40)} <em>{_words(rng, words, 3)}</em> {_words(rng, words, 20)}</p>\n"
            for _ in range(3)
        )
        for _ in range(size // 1300)
    )


def _html_page(rng: random.Random, size: int) -> str:
    """Tables, forms, lists and links, with entities and attributes."""
    words = _vocabulary(rng, 300)

    def block() -> str:
        cells = "".join(f'<td class="c{rng.randrange(9)}">{_pick(rng, words)} &amp; &eacute;' for _ in range(5))
        rows = "".join(f"<tr>{cells}\n" for _ in range(4))
        items = "".join(f'<li><a href="/{_pick(rng, words)}?a=1&amp;b=2">{_pick(rng, words)}</a>' for _ in range(6))
        return (
            f"<table><tbody>{rows}</tbody></table>\n<ul>{items}</ul>\n"
            f'<form action="/go"><div><label>{_pick(rng, words)}<input type="text" name="n{rng.randrange(99)}">'
            "</label></div></form>\n<pre>  a\n   b</pre>\n"
        )

    return _html(block() for _ in range(size // 1200))


def _html(blocks: Iterator[str]) -> str:
    body = "".join(blocks)
    return f"<!DOCTYPE html>\n<html lang='en'>\n<head><title>A page</title></head>\n<body>\n{body}</body>\n</html>\n"


def _tones(rng: random.Random, size: int) -> bytes:
    """Stereo sound of 16 bits: chords whose loudness changes."""
    pitches = [rng.uniform(80, 1500) for _ in range(6)]
    samples = []
    for number in range(size):
        time_s = number / 44100
        wave = sum(math.sin(2 * math.pi * pitch * time_s) / (k + 2) for k, pitch in enumerate(pitches))
        loudness = 6000 * (1 + math.sin(3 * time_s))
        samples += [int(loudness * wave + rng.gauss(0, 8)), int(0.7 * loudness * wave + rng.gauss(0, 20))]
    return _wav(samples, channels=2, rate=44100)


def _speech(rng: random.Random, size: int) -> bytes:
    """Mono sound of 16 bits: filtered noise in bursts, with silence between them."""
    samples, one, two = [], 0.0, 0.0
    for number in range(size):
        burst = 2000 if number // 4000 % 3 else 0
        one, two = 1.6 * one - 0.8 * two + rng.gauss(0, 1) * burst / 4, one
        samples.append(max(-32768, min(32767, int(one))))
    return _wav(samples, channels=1, rate=16000)


def _wav(samples: list[int], *, channels: int, rate: int) -> bytes:
    data = struct.pack(f"<{len(samples)}h", *samples)
    head = struct.pack("<IHHIIHH", 16, 1, channels, rate, 2 * channels * rate, 2 * channels, 16)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + head + b"data" + struct.pack("<I", len(data)) + data
    )


def _photo(rng: random.Random, size: int) -> bytes:
    """Smooth colours with noise, in PPM."""
    side = math.isqrt(size)
    waves = [(rng.uniform(0.01, 0.2), rng.uniform(0.01, 0.2), rng.uniform(10, 50)) for _ in range(3)]

    def pixel(x: int, y: int) -> Iterator[int]:
        for one, two, high in waves:
            value = 128 + high * (math.sin(one * x) + math.cos(two * y)) + rng.gauss(0, 4)
            yield max(0, min(255, int(value)))

    return _ppm(side, b"".join(bytes(pixel(x, y)) for y in range(side) for x in range(side)))


def _drawing(rng: random.Random, size: int) -> bytes:
    """Rectangles of few colours, and lines, in PPM."""
    side = math.isqrt(size)
    rows = [bytearray(b"\xff\xff\xf0" * side) for _ in range(side)]
    for _ in range(60):
        colour = bytes(rng.randrange(0, 256, 51) for _ in range(3))
        left, top = rng.randrange(side), rng.randrange(side)
        width, height = rng.choice([(side, 1), (1, side), (rng.randrange(1, side // 4), rng.randrange(1, side // 4))])
        for row in rows[top : top + height]:
            width_here = min(width, side - left)
            row[3 * left : 3 * (left + width_here)] = colour * width_here
    return _ppm(side, b"".join(rows))


def _ppm(side: int, pixels: bytes) -> bytes:
    return f"P6\n{side} {side}\n255\n".encode() + pixels


def _genome(rng: random.Random, size: int, letters: str = "AACCGGTT") -> str:
    """Genes of both directions between random bases, in FASTA."""
    codons = [a + b + c for a in letters for b in letters for c in letters if a + b + c not in ("TAA", "TAG", "TGA")]
    favourites = rng.sample(codons, min(30, len(codons)))
    bases = ""
    parts: list[str] = []
    for _ in range(size // 1000):
        gene = "ATG" + "".join(_pick(rng, favourites) for _ in range(rng.randrange(100, 480))) + "TAA"
        if rng.random() < 0.5:
            gene = gene[::-1].translate(str.maketrans("ACGT", "TGCA"))
        parts += ["".join(rng.choice(letters) for _ in range(rng.randrange(20, 200))), gene]
    bases = "".join(parts)
    return ">made\n" + "".join(f"{bases[k : k + 70]}\n" for k in range(0, len(bases), 70))


def _genome_of_gc(rng: random.Random, size: int) -> str:
    """A genome with other bases and codons."""
    return _genome(rng, size, "ACCCGGGT")


def _vocabulary(rng: random.Random, size: int) -> list[str]:
    syllables = [a + b for a in "b d f g k l m n p r s t v st tr ch".split() for b in "a e i o u ai ou en or".split()]
    return [
        "".join(rng.choice(syllables) for _ in range(1 + number.bit_length() // 4)) for number in range(1, size + 1)
    ]


def _pick(rng: random.Random, items: list[str]) -> str:
    """One of the items, the first ones often."""
    return items[int(len(items) ** rng.random()) - 1]


def _words(rng: random.Random, words: list[str], count: int) -> str:
    return " ".join(_pick(rng, words) for _ in range(count))


def _lzip(plain: bytes) -> bytes:
    """A member of a file of lzip: head, a stream of LZMA with its end marked, checksum and sizes."""
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": 1 << _LZIP_DICTIONARY, "lc": 3, "lp": 0, "pb": 2}]
    stream = lzma.compress(plain, lzma.FORMAT_ALONE, filters=filters)[13:]
    head = b"LZIP\x01" + bytes([_LZIP_DICTIONARY])
    return head + stream + struct.pack("<IQQ", zlib.crc32(plain), len(plain), len(head) + len(stream) + 20)


KINDS: dict[str, _Make] = {
    "prose": _prose,
    "log": _log,
    "binary-records": _binary_records,
    "xml-records": _xml_records,
    "xml-document": _xml_document,
    "html-article": _html_article,
    "html-page": _html_page,
    "tones": _tones,
    "speech": _speech,
    "photo": _photo,
    "drawing": _drawing,
    "genome": _genome,
    "genome-of-gc": _genome_of_gc,
    **code_inputs.KINDS,
}
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "lz": _lzip,
}
