"""Client scripts for a real scheduler: what clients send, and when the scheduler's loop goes round."""
