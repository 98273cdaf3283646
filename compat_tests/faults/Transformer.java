// Reads, writes and commits in transactions by Java's client, until standard input ends, as confluent_transformer.py does.

import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transformer {
    static final int RESTART = 3;
    static final double ABORTED_SHARE = 0.1;
    static final Random CHOICE = new Random();
    static final PrintStream EVENTS = System.out;

    final String output;
    final String name;
    int transactions = 0;
    final KafkaConsumer<String, String> consumer;
    final KafkaProducer<String, String> producer;

    Transformer(String bootstrap, String input, String output, String group, String transactionalId) {
        this.output = output;
        name = transactionalId + "-" + UUID.randomUUID();
        consumer = new KafkaConsumer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", group,
            "isolation.level", "read_committed",
            "enable.auto.commit", "false",
            "auto.offset.reset", "earliest",
            "session.timeout.ms", "1500",
            "heartbeat.interval.ms", "300",
            "reconnect.backoff.max.ms", "200",
            "max.poll.records", "100"), new StringDeserializer(), new StringDeserializer());
        producer = new KafkaProducer<>(Map.of(
            "bootstrap.servers", bootstrap,
            "transactional.id", transactionalId,
            "transaction.timeout.ms", "10000",
            "delivery.timeout.ms", "30000",
            "request.timeout.ms", "5000",
            "reconnect.backoff.max.ms", "200",
            "linger.ms", "1"), new StringSerializer(), new StringSerializer());
        insist(producer::initTransactions);
        consumer.subscribe(List.of(input));
    }

    void transact() {
        ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(50));
        if (records.isEmpty()) {
            return;
        }
        producer.beginTransaction();
        try {
            write(records);
            if (CHOICE.nextDouble() < ABORTED_SHARE) {
                abort();
            } else {
                insist(producer::commitTransaction);
                tell("committed", records.count());
            }
        } catch (KafkaException error) {
            abort();  // a failed abort raises again
        }
    }

    void write(ConsumerRecords<String, String> records) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        transactions++;
        String key = name + "-" + transactions + "/" + records.count();
        for (ConsumerRecord<String, String> record : records) {
            producer.send(new ProducerRecord<>(output, record.partition(), key, record.value()));
            offsets.put(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        insist(() -> producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata()));
    }

    void abort() {
        insist(producer::abortTransaction);
        tell("aborted", 0);
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata found = committed.get(partition);
            consumer.seek(partition, found == null ? 0 : found.offset());
        }
    }

    static void insist(Runnable action) {
        while (true) {
            try {
                action.run();
                return;
            } catch (TimeoutException again) {
                // the action is retried until there is a reply
            }
        }
    }

    static void tell(String event, int count) {
        EVENTS.println("{\"event\": \"" + event + "\", \"count\": " + count + "}");
    }

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);  // for the client's log
        AtomicBoolean isOver = new AtomicBoolean();
        Thread listening = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException closed) {
                // closed input is the end of input as well
            }
            isOver.set(true);
        });
        listening.setDaemon(true);
        listening.start();
        try {
            Transformer transformer = new Transformer(
                arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
            while (!isOver.get()) {
                transformer.transact();
            }
            transformer.consumer.close();
            transformer.producer.close();
        } catch (KafkaException error) {
            error.printStackTrace();
            System.exit(RESTART);
        }
    }
}
