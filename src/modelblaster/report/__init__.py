"""What people and programs are shown: live progress, the final table, JSON. It reads events and results, no more."""
