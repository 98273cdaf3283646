// Kafka Streams application that counts words. A compacted topic backs the store of its counts.
// Arguments: bootstrap servers, state directory, processing guarantee, name (also the prefix of its topics).
// The application stops at the end of standard input.

import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

public class WordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[2]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, -1);  // the brokers' default
        settings.put("auto.offset.reset", "earliest");
        // The application does not leave its group when it stops, so the next one waits this long.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[3] + "-sentences", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(sentence -> Arrays.asList(sentence.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(arguments[3] + "-results", Produced.with(Serdes.String(), Serdes.Long()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setStateListener((now, before) -> System.out.println(now));
            streams.start();
            while (System.in.read() >= 0) {
            }
        }
    }
}
