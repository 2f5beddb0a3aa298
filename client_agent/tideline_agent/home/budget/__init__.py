"""The budget of a home's rows: closer accounting where it is installed, what is let go of, what the owner sees and says."""
