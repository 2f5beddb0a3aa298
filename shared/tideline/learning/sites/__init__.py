"""A site's data as its owner's own Python gives them: Datasets, arrays, or a folder; in simulations, or named to an agent."""
