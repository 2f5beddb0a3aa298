"""What rehearsals at labelled sites tell of a site without labels: which adaptations to trust, and what to expect of them."""
