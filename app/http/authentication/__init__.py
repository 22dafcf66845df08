"""Who calls: one module for each kind of credential."""
