"""How the tables came to be, a file for each change. `env` is run by Alembic, and only by code."""
