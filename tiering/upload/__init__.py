"""Upload of sealed segments, and notices to followers about them."""
