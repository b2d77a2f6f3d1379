"""A package repository in a folder, for the real apt-get: no network, and nothing of the machine's.

It offers the packages that the corpus is made of, with a few sentences in each.
"""

import hashlib
import os
import struct
import subprocess
from pathlib import Path

from innerloop.corpora import Corpus

STANZA = """\
Package: {name}
Version: 1:1.0
Architecture: all
Maintainer: Nobody <nobody@example.org>
Description: sentences
"""


def statements():
    """Twenty pairs of sentences, hardly one of which repeats three words of another."""
    return [(pair.source, pair.target) for pair in Corpus.open("small").validation[:20]]


def catalogue(texts):
    """A compiled gettext catalogue; texts from the original to its translation."""
    items = sorted((k.encode(), v.encode()) for k, v in texts.items())
    header = 28 + 16 * len(items)
    tables, data = [b"", b""], b""
    for side in (0, 1):
        for item in items:
            tables[side] += struct.pack("<2I", len(item[side]), header + len(data))
            data += item[side] + b"\0"
    first = struct.pack("<7I", 0x950412DE, 0, len(items), 28, 28 + 8 * len(items), 0, 0)
    return first + tables[0] + tables[1] + data


def page(blocks):
    return "\n".join(f'<p id="par_id{i}" class="paragraph" dir="auto">{b}</p>' for i, b in blocks)


def package_files(pairs):
    german = [(i, f"<b>{de}</b>") for i, (de, _) in enumerate(pairs[:8])]
    english = [(i, en) for i, (_, en) in enumerate(pairs[:8])]
    root = "usr/share/libreoffice/help"
    unpaired = (99, "Dieser Absatz hat drüben kein Gegenstück.")
    code = '\n<p id="par_id7" class="bascode">Dim keine Sprache As Integer</p>'
    lines = "\n".join(f"Wort {{n}} | {de} [ugs.] :: word | {en}" for de, en in pairs[8:12])
    windows = {f"context\x04_{en}": de for de, en in pairs[12:16]}
    return {
        "libreoffice-help-de": {f"{root}/de/text/a.html": page([*german, unpaired])},
        "libreoffice-help-en-us": {f"{root}/en-US/text/a.html": page(english) + code},
        "trans-de-en": {"usr/share/trans/de-en": f"# a comment :: here\n{lines}\n"},
        "libreoffice-l10n-de": {
            "usr/lib/libreoffice/program/resource/de/LC_MESSAGES/a.mo": catalogue(
                {"": "Content-Type: text/plain", **windows}
            )
        },
    }


def descriptions(pairs, language):
    """Two paragraphs and a list that is no sentence, under a digest of the English text."""
    side = 0 if language == "de" else 1
    stanzas = []
    for number, pair in enumerate(pairs[16:20]):
        digest = hashlib.md5(pair[1].encode()).hexdigest()
        body = f" {pair[side]}\n .\n  * {language}\n"
        stanzas.append(
            f"Package: p{number}\nDescription-md5: {digest}\n"
            f"Description-{language}: kurz {number}\n{body}"
        )
    return "\n".join(stanzas)


def build(folder: Path, without=()):
    """The repository, and the file that APT_CONFIG must name."""
    pairs = statements()
    dist, pool = folder / "dists" / "stable", folder / "pool"
    listed = ""
    for name, files in package_files(pairs).items():
        if name in without:
            continue
        tree = folder / "trees" / name
        for path, content in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes) else content.encode()
            (tree / path).write_bytes(data)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(STANZA.format(name=name))
        pool.mkdir(exist_ok=True)
        deb = pool / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", tree, deb], check=True, capture_output=True)
        digest = hashlib.sha256(deb.read_bytes()).hexdigest()
        listed += STANZA.format(name=name)
        listed += f"Filename: pool/{name}.deb\nSize: {deb.stat().st_size}\nSHA256: {digest}\n\n"
    architecture = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    indices = {
        f"main/binary-{architecture}/Packages": listed,
        "main/i18n/Translation-de": descriptions(pairs, "de"),
        "main/i18n/Translation-en": descriptions(pairs, "en"),
    }
    release = f"Suite: stable\nCodename: stable\nComponents: main\nArchitectures: {architecture}\n"
    release += "Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
    for path, text in indices.items():
        (dist / path).parent.mkdir(parents=True, exist_ok=True)
        (dist / path).write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        release += f" {digest} {len(text.encode())} {path}\n"
    (dist / "Release").write_text(release)
    sources = folder / "sources.list"
    sources.write_text(f"deb [trusted=yes] copy:{folder} stable main\n")
    config = folder / "apt.conf"
    config.write_text(
        f'Dir::Etc::sourcelist "{sources}";\nDir::Etc::sourceparts "{os.devnull}";\n'
        f'Dir::Etc::parts "{os.devnull}";\n'
    )
    return config
