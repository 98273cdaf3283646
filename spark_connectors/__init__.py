"""PySpark sources and sinks for Kafka topics; shipped alone as a zip too, so it imports nothing else of ours."""
