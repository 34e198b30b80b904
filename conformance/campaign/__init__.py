"""Campaigns: blocks of scenarios given to many workers for hours, and one report of what they found."""
