"""What only a GPU shows, and the archive that takes the suite to a host with one."""
