"""The dashboard's files, and how they are served. What they show they ask of the API, as any other program does."""
