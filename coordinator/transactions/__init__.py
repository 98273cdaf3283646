"""Producer ids; the transaction coordinator comes here."""
