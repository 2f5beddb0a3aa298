"""Who may see what at a coordinator: its projects."""
