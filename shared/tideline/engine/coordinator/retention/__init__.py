"""What is deleted, and when: runs by a person's word, and what is older than the operator's rules."""
