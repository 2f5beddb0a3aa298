"""Parts that are not as they were written: found, put aside, and made again where somebody has them."""
