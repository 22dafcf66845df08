"""How fast the pipeline is, beside another algorithm and another engine."""
