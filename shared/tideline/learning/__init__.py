"""From a site's files to tensors, and from tensors to trained and scored networks."""
