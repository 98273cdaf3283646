// Members of consumer groups and Kafka's command-line tools in one JVM, because the start of a JVM takes seconds.
// The commands are those of driver.py: one JSON document a line, each with the name of its member.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.utils.internals.Exit;

public class GroupHost {
    static final ObjectMapper JSON = new ObjectMapper();
    static final PrintStream OUT = System.out;
    static final Duration POLL = Duration.ofMillis(50);

    public static void main(String[] none) throws Exception {
        Map<String, Member> members = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            String name = command.get("member").asText();
            switch (command.get("do").asText()) {
                case "tool" -> emit(name, "done", Map.of("do", "tool", "result", runTool(command)));
                case "start" -> {
                    Member member = new Member(name, command);
                    members.put(name, member);
                    Thread thread = new Thread(member, name);
                    thread.setDaemon(true);
                    thread.start();
                }
                default -> members.get(name).commands.add(command);
            }
        }
    }

    static synchronized void emit(String member, String event, Map<String, ?> fields) {
        Map<String, Object> document = new HashMap<>(fields);
        document.put("member", member);
        document.put("event", event);
        try {
            OUT.println(JSON.writeValueAsString(document));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    static class Left extends RuntimeException {
        final int code;

        Left(int code) {
            this.code = code;
        }
    }

    /** Runs a tool's main(): its output is kept, its exit is caught. */
    static Map<String, Object> runTool(JsonNode command) throws Exception {
        List<String> arguments = new ArrayList<>();
        command.get("arguments").forEach(each -> arguments.add(each.asText()));
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        PrintStream kept = new PrintStream(said, true);
        Exit.Procedure leave = (code, message) -> {
            if (message != null) {
                kept.println(message);
            }
            throw new Left(code);
        };
        Exit.setExitProcedure(leave);
        Exit.setHaltProcedure(leave);
        PrintStream errors = System.err;
        System.setOut(kept);
        System.setErr(kept);
        int code = 0;
        try {
            Class.forName(command.get("class").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (java.lang.reflect.InvocationTargetException error) {
            if (!(error.getCause() instanceof Left)) {
                error.getCause().printStackTrace(kept);
            }
            code = error.getCause() instanceof Left left ? left.code : 1;
        } finally {
            System.setOut(OUT);
            System.setErr(errors);
        }
        return Map.of("code", code, "output", said.toString());
    }

    static class Member implements Runnable, ConsumerRebalanceListener {
        final ConcurrentLinkedQueue<JsonNode> commands = new ConcurrentLinkedQueue<>();
        final String name;
        final JsonNode settings;
        KafkaConsumer<String, String> consumer;

        Member(String name, JsonNode settings) {
            this.name = name;
            this.settings = settings;
        }

        static List<List<Object>> named(Collection<TopicPartition> partitions) {
            return partitions.stream()
                .sorted(Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition))
                .map(each -> List.<Object>of(each.topic(), each.partition()))
                .toList();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            emit(name, "assigned", Map.of("partitions", named(partitions)));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            emit(name, "revoked", Map.of("partitions", named(partitions)));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            emit(name, "lost", Map.of("partitions", named(partitions)));
        }

        @Override
        public void run() {
            try {
                serve();
            } catch (Exception error) {
                emit(name, "failed", Map.of("error", error.toString()));
            }
        }

        void serve() throws InterruptedException {
            Properties properties = new Properties();
            settings.get("properties").fields().forEachRemaining(
                each -> properties.put(each.getKey(), each.getValue().asText()));
            properties.put("enable.auto.commit", "false");
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
            if (settings.get("pattern").asText().isEmpty()) {
                List<String> topics = new ArrayList<>();
                settings.get("topics").forEach(each -> topics.add(each.asText()));
                consumer.subscribe(topics, this);
            } else {
                consumer.subscribe(Pattern.compile(settings.get("pattern").asText()), this);
            }
            List<List<Object>> shown = null;
            boolean open = true;
            while (open) {
                readAndCommit();
                List<List<Object>> owned = named(consumer.assignment());
                if (!owned.equals(shown)) {
                    emit(name, "assignment", Map.of("partitions", owned));
                    shown = owned;
                }
                for (JsonNode command = commands.poll(); open && command != null; command = commands.poll()) {
                    Map<String, Object> reply = new HashMap<>();
                    reply.put("do", command.get("do").asText());
                    reply.put("result", obey(command));
                    emit(name, "done", reply);
                    open = !Set.of("close", "abandon").contains(command.get("do").asText());
                }
            }
        }

        void readAndCommit() {
            List<List<Object>> records = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (ConsumerRecord<String, String> each : consumer.poll(POLL)) {
                records.add(List.of(each.topic(), each.partition(), each.offset(), each.value()));
                TopicPartition partition = new TopicPartition(each.topic(), each.partition());
                ends.put(partition, new OffsetAndMetadata(each.offset() + 1, each.leaderEpoch(), "read"));
            }
            if (records.isEmpty()) {
                return;
            }
            emit(name, "records", Map.of("records", records));
            try {
                consumer.commitSync(ends);
            } catch (Exception error) {
                emit(name, "commit_failed", Map.of("error", error.toString()));
                return;
            }
            List<List<Object>> committed = new ArrayList<>();
            ends.forEach((partition, end) ->
                committed.add(List.of(partition.topic(), partition.partition(), end.offset())));
            emit(name, "committed", Map.of("offsets", committed));
        }

        Object obey(JsonNode command) throws InterruptedException {
            List<TopicPartition> partitions = new ArrayList<>();
            command.path("partitions").forEach(
                each -> partitions.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt())));
            switch (command.get("do").asText()) {
                case "close" -> consumer.close();
                case "abandon" -> consumer.close(CloseOptions
                    .groupMembershipOperation(CloseOptions.GroupMembershipOperation.REMAIN_IN_GROUP)
                    .withTimeout(Duration.ZERO));
                case "idle" -> Thread.sleep(Math.round(command.get("seconds").asDouble() * 1000));
                case "pause" -> consumer.pause(partitions);
                case "resume" -> consumer.resume(partitions);
                case "seek" -> consumer.seek(partitions.get(0), command.get("offset").asLong());
                case "commit" -> consumer.commitSync(Map.of(partitions.get(0),
                    new OffsetAndMetadata(command.get("offset").asLong(), command.get("metadata").asText())));
                case "committed" -> {
                    OffsetAndMetadata found = consumer.committed(Set.copyOf(partitions)).get(partitions.get(0));
                    return found == null ? null : List.of(found.offset(), found.metadata());
                }
                default -> throw new IllegalArgumentException(command.toString());
            }
            return null;
        }
    }
}
