"""`python -m posterity.cli` is `posterity`."""

from posterity.cli import main

main()
