"""Networks whose encoder is frozen."""
