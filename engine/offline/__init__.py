"""Commands on log dirs that no broker has open."""
