"""Plans over HTTP: the document that is desired, the routes."""
