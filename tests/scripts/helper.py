"""Beside the script, as a model is."""

import time


def pause(ms: float) -> None:
    time.sleep(ms / 1000)
