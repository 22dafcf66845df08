"""Files of other tools, read leniently: what is carried over, and what is not."""
