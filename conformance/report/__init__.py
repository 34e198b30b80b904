"""From outcomes to what people and machines read: counts, findings on one screen, files."""
