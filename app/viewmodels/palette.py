"""Okabe and Ito's eight colours, which readers who are colour-blind can tell apart, for light and dark paper.

Okabe and Ito (2008), "Color Universal Design"; shifted where they lack contrast.
"""

ON_LIGHT = ("#0072b2", "#d55e00", "#00875f", "#b5528b", "#a87400", "#2b8fca", "#857a00", "#555b63")
ON_DARK = ("#4aa8e0", "#f08040", "#2fc295", "#dc8fbb", "#e69f00", "#8fd0f5", "#f0e442", "#b9c0c8")
