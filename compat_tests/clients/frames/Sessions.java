import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sessions of Java's client whose requests are recorded: see sessions.py. */
public final class Sessions {
    private static final List<String> TOPICS = List.of("events", "orders", "payments");
    private static final int MANY = 40;
    private static final int ROUNDS = 10;

    private final String broker;

    private Sessions(String broker) {
        this.broker = broker;
    }

    public static void main(String[] arguments) throws Exception {
        Sessions sessions = new Sessions(arguments[0]);
        for (Map<String, String> settings : List.of(
                Map.<String, String>of(),
                Map.of("acks", "1", "enable.idempotence", "false"),
                Map.of("acks", "0", "enable.idempotence", "false"),
                Map.of("enable.idempotence", "false"),
                Map.of("compression.type", "lz4", "linger.ms", "50"),
                Map.of("compression.type", "zstd"))) {
            sessions.produce(settings);
        }
        sessions.readAsGroup();
        sessions.readByHand();
    }

    private void produce(Map<String, String> settings) throws Exception {
        try (KafkaProducer<String, String> producer = producer(settings)) {
            producer.send(new ProducerRecord<>("events", "k", "v")).get();
            for (int number = 0; number < MANY; number++) {
                for (String topic : TOPICS) {
                    producer.send(new ProducerRecord<>(topic, "k" + number, "v"));
                }
            }
        }
    }

    private void readAsGroup() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of());
                KafkaConsumer<String, String> consumer = consumer()) {
            consumer.subscribe(List.of("events", "orders"));
            for (int round = 0; round < ROUNDS; round++) {
                producer.send(new ProducerRecord<>("orders", "k" + round, "v")).get();
                poll(consumer);
            }
            consumer.commitSync();
        }
    }

    private void readByHand() throws Exception {
        List<TopicPartition> assigned = new ArrayList<>();
        for (int partition = 0; partition < 12; partition++) {
            assigned.add(new TopicPartition("payments", partition));
        }
        try (KafkaProducer<String, String> producer = producer(Map.of());
                KafkaConsumer<String, String> consumer = consumer()) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            for (int round = 0; round < ROUNDS; round++) {
                producer.send(new ProducerRecord<>("payments", "k" + round, "v")).get();
                poll(consumer);
                if (round == ROUNDS / 2) {
                    consumer.pause(assigned.subList(0, 4));
                }
            }
            consumer.commitSync();
        }
    }

    private static void poll(KafkaConsumer<String, String> consumer) {
        long end = System.currentTimeMillis() + 700;
        while (System.currentTimeMillis() < end) {
            consumer.poll(Duration.ofMillis(100));
        }
    }

    private KafkaProducer<String, String> producer(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", broker);
        properties.putAll(settings);
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", broker);
        properties.put("group.id", "readers");
        properties.put("heartbeat.interval.ms", "300");
        properties.put("session.timeout.ms", "6000");
        properties.put("auto.commit.interval.ms", "500");
        properties.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }
}
