"""What a user, a file or a machine may do wrong: each has its sentence, and nothing hangs."""
