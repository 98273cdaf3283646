"""aiokafka's producer and consumer."""
