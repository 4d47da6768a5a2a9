"""How numbers read wherever they are shown: on screens, in reports, in a terminal."""

import re
from collections.abc import Iterable

BROKEN = {
    "no number": re.compile(r"\b(?:None(?! of )|nan|inf)\b"),
    "a hyphen for a minus": re.compile(r"(?:^|[\s(])-\d"),
    "a percent sign without a no-break space": re.compile(r"\d ?%"),
    "a decimal size": re.compile(r"\d\s[KMG]B\b"),
    "a space after plus and minus": re.compile("± "),
}


def faults(shown: Iterable[str]) -> list[str]:
    """Return what reads otherwise than elsewhere, each once."""
    return [
        f"{name}: {text[max(0, found.start() - 20) : found.end() + 20]}"
        for text in dict.fromkeys(shown)
        for name, pattern in BROKEN.items()
        if (found := pattern.search(text))
    ]
