"""What runs do around a method's plan: fields beside its records, and exchanges before its first."""
