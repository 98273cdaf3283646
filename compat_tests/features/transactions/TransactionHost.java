// Transactional producer by Java's client, with the commands of driver.py.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

public class TransactionHost {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> properties = Map.of(
            "bootstrap.servers", arguments[0],
            "transactional.id", arguments[1],
            "transaction.timeout.ms", arguments[2],
            "delivery.timeout.ms", "20000",
            "request.timeout.ms", "10000",
            "max.block.ms", "20000");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            String task = command.get("do").asText();
            String error = "";
            try {
                obey(producer, task, command);
            } catch (ExecutionException raised) {
                error = raised.getCause().toString();
            } catch (Exception raised) {
                error = raised.toString();
            }
            System.out.println(JSON.writeValueAsString(Map.of("event", "done", "do", task, "error", error)));
            if (task.equals("close")) {
                return;
            }
        }
    }

    static void obey(KafkaProducer<String, String> producer, String task, JsonNode command) throws Exception {
        switch (task) {
            case "initialise" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(command.get("topic").asText(),
                command.get("partition").asInt(), null, command.get("value").asText())).get(20, TimeUnit.SECONDS);
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(command.get("topic").asText(), command.get("partition").asInt()),
                    new OffsetAndMetadata(command.get("offset").asLong())),
                new ConsumerGroupMetadata(command.get("group").asText()));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close();
            default -> throw new IllegalArgumentException(task);
        }
    }
}
