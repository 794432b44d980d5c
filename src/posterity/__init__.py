"""Implicit posteriors for neural networks: honest uncertainty for any PyTorch network."""

__version__ = "0.1.0"
