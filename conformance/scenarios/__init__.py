"""Where scenarios come from: chosen by hand, every one up to a bound, at random."""
