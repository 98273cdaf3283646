"""PySpark sources and sinks that read sealed segments without a broker will live here; shipped alone as a zip too."""
