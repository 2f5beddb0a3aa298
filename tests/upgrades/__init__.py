"""The last release beside this tree: processes of the one become processes of the other while runs go on, and back."""
