"""Networks of rows that are neither vectors nor images, and rows of any world to try networks with."""
