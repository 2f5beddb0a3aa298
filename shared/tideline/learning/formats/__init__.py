"""From a site's files to domains of samples: arrays, tables, images, and what can be said of them before they are read."""
