"""From many updates to one: means, robust folds, masks, attention, hypernetworks, the server's step."""
