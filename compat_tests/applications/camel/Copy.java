// Camel route that copies a topic. It commits by hand, and reads again from a record that failed: a record that says
// "late" fails twice. A repository of Camel's, which is a topic, drops the copies that another reading would make.
// Arguments: bootstrap servers, input topic, output topic, topic of the repository, number of records.
// The application stops when it has sent that number of records.

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.camel.builder.RouteBuilder;
import org.apache.camel.component.kafka.KafkaConstants;
import org.apache.camel.component.kafka.consumer.KafkaManualCommit;
import org.apache.camel.main.Main;
import org.apache.camel.processor.idempotent.kafka.KafkaIdempotentRepository;

public class Copy {
    private static final int ATTEMPTS = 3;

    public static void main(String[] arguments) throws Exception {
        String servers = "?brokers=" + arguments[0];
        CountDownLatch left = new CountDownLatch(Integer.parseInt(arguments[4]));
        Map<String, Integer> attempts = new ConcurrentHashMap<>();
        KafkaIdempotentRepository repository = new KafkaIdempotentRepository(arguments[3], arguments[0]);
        Main main = new Main();
        main.bind("copied", repository);
        main.configure().addRoutesBuilder(new RouteBuilder() {
            @Override
            public void configure() {
                from("kafka:" + arguments[1] + servers + "&groupId=" + arguments[1] + "-copiers"
                        + "&autoOffsetReset=earliest&autoCommitEnable=false&allowManualCommit=true"
                        + "&breakOnFirstError=true&consumersCount=2&maxPollRecords=50")
                    .process(exchange -> {
                        String value = exchange.getMessage().getBody(String.class);
                        if (value.startsWith("late") && attempts.merge(value, 1, Integer::sum) < ATTEMPTS) {
                            throw new IllegalStateException("not yet: " + value);
                        }
                    })
                    .idempotentConsumer(header(KafkaConstants.KEY)).idempotentRepository("copied")
                    .removeHeader(KafkaConstants.PARTITION_KEY)
                    .to("kafka:" + arguments[2] + servers + "&requestRequiredAcks=all")
                    .process(exchange -> left.countDown())
                    .end()
                    .process(exchange -> exchange.getMessage()
                        .getHeader(KafkaConstants.MANUAL_COMMIT, KafkaManualCommit.class).commit());
            }
        });
        main.start();
        boolean isDone = left.await(90, TimeUnit.SECONDS);
        main.stop();
        if (!isDone) {
            throw new IllegalStateException(left.getCount() + " records are not copied");
        }
        System.out.println("failed " + attempts.values().stream().mapToInt(each -> each - 1).sum());
    }
}
