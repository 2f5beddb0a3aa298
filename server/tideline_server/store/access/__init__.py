"""Who may see what: projects, and the sessions of users who have signed in."""
