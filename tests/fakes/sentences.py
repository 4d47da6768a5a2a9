"""What makes a sentence of the window hard to read aloud."""

import re
from collections.abc import Iterator

LONGEST = 25
UNSPEAKABLE = {
    "command": r"`|python -m|(?<!\w)--\w|(?<!\w)-s |\b[a-z_]+=\w",
    "name of a kernel": r"sm\d\d_|xmma|cutlass",
    "UUID": r"GPU-[0-9a-f]{8}",
    "brackets within brackets": r"\([^()]*\(",
    "two units": r"%.*\d×|\d×.*%",
}


def sentences_of(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+(?=\S)", text) if part]


def sentence_faults(text: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence that takes more than one breath or has a word that nobody says, with what is wrong."""
    for sentence in sentences_of(text):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        if len(words) > LONGEST:
            yield sentence, f"{len(words)} words"
        yield from ((sentence, name) for name, pattern in UNSPEAKABLE.items() if re.search(pattern, sentence))
