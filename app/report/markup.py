"""Text from anywhere as text in HTML and SVG: nothing in it is ever markup."""

import re
from html import escape

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def plain(words: str) -> str:
    """The words with U+FFFD for every character that XML cannot hold.

    XML 1.0, production 2 (Char): https://www.w3.org/TR/xml/#charsets
    """
    return _NOT_XML.sub("\ufffd", words)


def escaped(words: str) -> str:
    """The words between tags or in an attribute's quotes, made `plain`."""
    return escape(plain(words), quote=True)
