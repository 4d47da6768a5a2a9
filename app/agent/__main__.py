"""The agent: `python -m app.agent` makes runs on this host for a program elsewhere (`app.agent_protocol`)."""

import os

from app.agent.guard import start_guard

if __name__ == "__main__":
    scratch, guard = start_guard()
    # Only now: the guard needs none of it.
    from app.agent.serve import serve

    os._exit(serve(scratch, guard))
