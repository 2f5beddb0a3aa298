"""Who gets which rows: data dealt out to sites, as indices or as folders."""
