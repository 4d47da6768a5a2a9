"""Imported by Python at its start where this folder is on PYTHONPATH: gives the process the fake NVIDIA driver."""

from tests.fakes.nvml import install_from_environment

install_from_environment()
