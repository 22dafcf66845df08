"""What to change: right sizes, values that do nothing, promises, drift; plans of small tables."""
