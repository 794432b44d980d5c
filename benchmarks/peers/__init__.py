"""The cost of other libraries beside posterity's: every contender in a process, every library in an environment."""
