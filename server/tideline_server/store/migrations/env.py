"""Run by Alembic for each command: the migrations run inside the transaction that the command was given."""

from __future__ import annotations

from alembic import context

from tideline_server.store.schema import metadata

connection = context.config.attributes["connection"]
postgres = connection.dialect.name == "postgresql"
context.configure(
    connection=connection,
    target_metadata=metadata,
    transactional_ddl=True,  # SQLite's too: a writer begins its transactions itself
    render_as_batch=True,  # SQLite alters little: a table is copied instead
    # Ours, even where another schema of the search path has a table of this name.
    version_table_schema=connection.dialect.default_schema_name if postgres else None,
)
with context.begin_transaction():
    context.run_migrations()
