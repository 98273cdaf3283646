"""Spring Boot with Spring for Apache Kafka."""
