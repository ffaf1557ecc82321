"""The switch that keeps rood off the network: ROOD_OFFLINE=1, or the hub's own HF_HUB_OFFLINE=1."""

import os

SWITCHES = ("ROOD_OFFLINE", "HF_HUB_OFFLINE")


def offline() -> bool:
    """Whether only what is on this machine may be used."""
    return any(os.environ.get(name, "0").lower() not in ("", "0", "false") for name in SWITCHES)


def go_offline() -> None:
    """Use only what is on this machine, from now on, in this process and those it starts."""
    for name in SWITCHES:
        os.environ[name] = "1"
