"""One module per section of the book; each gives its pages."""
