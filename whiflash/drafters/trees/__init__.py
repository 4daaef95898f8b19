"""Which nodes a draft tree gets: selection rules, apart from the models that score the nodes."""
