"""One file a library: what it is (`LIBRARY`), and what is measured of it (`CONTENDERS`, by name).

A file can be read without the library: it is imported when a contender is made, in the library's own environment.
"""

FILES = (
    "own",
    "torch_uncertainty",
    "bayesian_torch",
    "blitz",
    "torchbayesian",
    "torch_blue",
    "posteriors",
    "laplace",
    "vbll",
)
