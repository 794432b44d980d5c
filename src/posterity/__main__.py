"""`python -m posterity` is the command `posterity`."""

from posterity.cli import main

main()
