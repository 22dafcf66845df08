"""What the settings mean to the parts of the service, checked before anything starts."""
