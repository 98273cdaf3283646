"""Security with stock clients, and comparisons with the classes of Java and Apache Kafka."""
