"""The rule book: a static site made from the registry, the declarations, their docstrings and the data of the suite.

Nothing is typed twice: a page says what the object says that it shows. Guides are the repository's own Markdown files.
"""
