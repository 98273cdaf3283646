"""Code that tests of several packages share. It is not shipped."""
