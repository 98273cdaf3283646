"""PySpark with its stock kafka source and sink against the running broker."""
