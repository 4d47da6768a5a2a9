"""How colours look to people with each kind of colour vision, and how far apart they are then."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

VISIONS = {
    "trichromat": np.eye(3),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanope": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""What each sees of linear sRGB: Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for Simulation
of Color Vision Deficiency", IEEE TVCG 15(6), at full severity."""

_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
"""Linear sRGB to XYZ (IEC 61966-2-1); white is the sum of each row."""


def linear(colours: Sequence[str]) -> Floats:
    """Return colours such as #025d99 as linear sRGB from 0 to 1, [colours, red green blue]."""
    parts = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in colours]) / 255
    found: Floats = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return found


def seen(colours: Floats, vision: str) -> Floats:
    """Return linear colours as one of `VISIONS` sees them."""
    found: Floats = np.clip(colours @ VISIONS[vision].T, 0, 1)
    return found


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.2, from 1 to 21."""
    darker, lighter = sorted(linear((one, other)) @ _XYZ[1])
    return float((lighter + 0.05) / (darker + 0.05))


def lab(colours: Floats) -> Floats:
    """Return linear colours in CIELAB under D65."""
    parts = colours @ _XYZ.T / _XYZ.sum(1)
    x, y, z = np.moveaxis(np.where(parts > (6 / 29) ** 3, np.cbrt(parts), parts / (3 * (6 / 29) ** 2) + 4 / 29), -1, 0)
    return np.stack((116 * y - 16, 500 * (x - y), 200 * (y - z)), -1)


def distance(one: Floats, other: Floats) -> Floats:
    """Return CIEDE2000 between colours in CIELAB: ISO/CIE 11664-6:2014; about 1 is just noticed at best."""
    (light1, a1, b1), (light2, a2, b2) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    rise = 1.5 - _strong(np.hypot(a1, b1) / 2 + np.hypot(a2, b2) / 2) / 2
    chroma1, chroma2 = np.hypot(a1 * rise, b1), np.hypot(a2 * rise, b2)
    hue1, hue2 = np.arctan2(b1, a1 * rise), np.arctan2(b2, a2 * rise)
    turn = (hue2 - hue1 + np.pi) % (2 * np.pi) - np.pi
    light, chroma, hue = (light1 + light2) / 2, (chroma1 + chroma2) / 2, np.degrees(hue1 + turn / 2) % 360
    waves = ((-0.17, 1, -30), (0.24, 2, 0), (0.32, 3, 6), (-0.20, 4, -63))
    weight = 1 + sum(size * np.cos(np.radians(times * hue + shift)) for size, times, shift in waves)
    by_light = (light2 - light1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    by_chroma = (chroma2 - chroma1) / (1 + 0.045 * chroma)
    by_hue = 2 * np.sqrt(chroma1 * chroma2) * np.sin(turn / 2) / (1 + 0.015 * chroma * weight)
    blue = -2 * _strong(chroma) * np.sin(np.radians(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    found: Floats = np.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + blue * by_chroma * by_hue)
    return found


def _strong(chroma: Floats) -> Floats:
    return np.sqrt(chroma**7 / (chroma**7 + 25.0**7))


EDGE_PX = 3
"""How wide the line, or the smoothing, between two areas may be."""
CLEAR, BLURRED = 13.0, 7.0
"""CIEDE2000 of areas that everybody else sees apart, and of those that somebody hardly does."""


def lost_edges(picture: NDArray[np.uint8]) -> dict[tuple[str, str], float]:
    """Return the pairs of neighbouring areas that most people see apart and some hardly do, with the least distance.

    An area is two equal pixels in a row or a column; a pair is met a dozen times, or it is smoothing by chance.
    """
    codes = picture.astype(np.int64) @ (1 << 16, 1 << 8, 1)
    met = []
    for lines in (codes, codes.T):
        before, one = lines[:, : -EDGE_PX - 2], lines[:, 1 : -EDGE_PX - 1]
        other, after = lines[:, EDGE_PX + 1 : -1], lines[:, EDGE_PX + 2 :]
        edges = (before == one) & (other == after) & (one != other)
        met.append(np.minimum(one, other)[edges] << 24 | np.maximum(one, other)[edges])
    pairs, times = np.unique(np.concatenate(met), return_counts=True)
    sides = [[f"#{code:06x}" for code in side] for side in (pairs[times >= 12] >> 24, pairs[times >= 12] & 0xFFFFFF)]
    far = {vision: distance(*(lab(seen(linear(side), vision)) for side in sides)) for vision in VISIONS}
    least = np.min(list(far.values()), axis=0)
    lost = np.flatnonzero((far["trichromat"] >= CLEAR) & (least < BLURRED))
    return {(sides[0][at], sides[1][at]): round(float(least[at]), 1) for at in lost}
