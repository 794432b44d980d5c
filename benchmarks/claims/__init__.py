"""How often the sentences of a report are wrong, by simulation."""
