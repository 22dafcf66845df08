"""How fast the pipeline is, beside another way to do the same and another engine."""
