import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.Collectors;

import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Exercise of Kafka's own client against the brokers named on the command line, with its own topic and its own group.
 * It checks every reply, and that it reads what it sent. It uses only methods that the oldest and the newest client have.
 */
public final class Exercise {
    private static final int PARTITIONS = 3;
    private static final int COUNT = 1000;
    private static final long FIRST_MS = 1_700_000_000_000L;
    private static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    private final String bootstrap;
    private final String topic;
    private final String group;

    private Exercise(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.topic = topic;
        this.group = "readers of " + topic;
    }

    public static void main(String[] arguments) throws Exception {
        new Exercise(arguments[0], arguments[1]).run();
        System.out.println("done");
    }

    private void run() throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        try (AdminClient admin = AdminClient.create(settings)) {
            NewTopic created = new NewTopic(topic, 1, (short) 1).configs(Map.of("retention.ms", "-1"));
            admin.createTopics(Set.of(created)).all().get();
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(PARTITIONS))).all().get();
            for (String codec : CODECS) {
                produce(codec);
            }
            Map<TopicPartition, Long> ends = consume(COUNT * CODECS.size());
            administer(admin, ends);
        }
    }

    /** The producer is idempotent; offsets are in the order of sending. */
    private void produce(String codec) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", codec);
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "20");
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < COUNT; number++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(
                    topic, number % PARTITIONS, FIRST_MS + number, "key " + number, "value " + number);
                record.headers().add("number", Integer.toString(number).getBytes());
                sent.add(producer.send(record));
            }
        }
        Map<Integer, Long> last = new HashMap<>();
        for (Future<RecordMetadata> each : sent) {
            RecordMetadata stored = each.get();
            Long before = last.put(stored.partition(), stored.offset());
            check(before == null || before + 1 == stored.offset(), "offset " + stored + " after " + before);
        }
    }

    /** Reads as the only member of a group, and commits; returns the end offsets of the partitions. */
    private Map<TopicPartition, Long> consume(int expected) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Set.of(topic));
            int seen = 0;
            while (seen < expected) {
                for (ConsumerRecord<String, String> found : consumer.poll(Duration.ofSeconds(1))) {
                    String number = new String(found.headers().lastHeader("number").value());
                    check(found.key().equals("key " + number) && found.value().equals("value " + number)
                        && found.timestamp() == FIRST_MS + Integer.parseInt(number), found.toString());
                    seen++;
                }
            }
            check(seen == expected, seen + " records");
            consumer.commitSync();
            Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
            TopicPartition first = new TopicPartition(topic, 0);
            long offset = consumer.offsetsForTimes(Map.of(first, FIRST_MS)).get(first).offset();
            check(offset == 0, "offset by time " + offset);
            return ends;
        }
    }

    private void administer(AdminClient admin, Map<TopicPartition, Long> ends) throws Exception {
        Map<TopicPartition, Long> committed = admin.listConsumerGroupOffsets(group)
            .partitionsToOffsetAndMetadata().get().entrySet().stream()
            .collect(Collectors.toMap(Map.Entry::getKey, each -> ((OffsetAndMetadata) each.getValue()).offset()));
        check(committed.equals(ends), "committed " + committed + ", not " + ends);
        ConfigResource asked = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        String retention = admin.describeConfigs(Set.of(asked)).all().get().get(asked).get("retention.ms").value();
        check(retention.equals("-1"), "retention.ms is " + retention);
        int brokers = admin.describeCluster().nodes().get().size();
        check(brokers == bootstrap.split(",").length, brokers + " brokers");
        check(admin.describeConsumerGroups(Set.of(group)).all().get().get(group).members().isEmpty(), "no member");
        TopicPartition first = new TopicPartition(topic, 0);
        long low = admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(10)))
            .lowWatermarks().get(first).get().lowWatermark();
        check(low == 10, "low watermark " + low);
        admin.deleteConsumerGroups(Set.of(group)).all().get();
        admin.deleteTopics(Set.of(topic)).all().get();
    }

    private static void check(boolean holds, String complaint) {
        if (!holds) {
            throw new AssertionError(complaint);
        }
    }
}
