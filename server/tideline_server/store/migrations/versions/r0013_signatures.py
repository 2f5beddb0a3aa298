"""A holder signs what each reader of a sealed value is handed; before it signed each value once.

Values that were sealed before stay without: their readers refuse them, as nobody can sign them but their holders.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """One column for the other."""
    op.add_column("sealed", sa.Column("signatures", sa.JSON(none_as_null=True), nullable=True))
    op.drop_column("sealed", "signature")
