"""TLS, SASL, ACLs and quotas will live here; until then a config that asks for them is refused."""
