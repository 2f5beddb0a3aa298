"""Who belongs together: clusters of points and of styles, and mixtures of clusters' models."""
