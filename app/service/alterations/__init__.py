"""An alteration, step by step: validated, recorded, sent, concluded, answered."""
