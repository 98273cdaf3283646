// Spring Boot application that handles the orders of a topic. An order that says "late" fails twice, and is handled from
// a retry topic. An order that says "bad" always fails, and ends in the dead-letter topic.
// Arguments: bootstrap servers, topic, number of orders that are sent and then handled.
// The application prints what happened to each order, and stops when all orders are handled or dead.

package orders;  // Boot looks for components in all of it

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.annotation.BackOff;
import org.springframework.kafka.annotation.DltHandler;
import org.springframework.kafka.annotation.EnableKafkaRetryTopic;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.annotation.RetryableTopic;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.scheduling.TaskScheduler;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

@SpringBootApplication(proxyBeanMethods = false)
@EnableKafkaRetryTopic
public class Orders {
    private static final int ATTEMPTS = 3;
    private static CountDownLatch left;

    private final Map<String, Integer> attempts = new ConcurrentHashMap<>();

    @Bean
    static TaskScheduler taskScheduler() {
        return new ThreadPoolTaskScheduler();
    }

    @RetryableTopic(
        attempts = "" + ATTEMPTS, backOff = @BackOff(delay = 200, multiplier = 2), numPartitions = "2", replicationFactor = "-1")
    @KafkaListener(topics = "${orders.topic}", groupId = "${orders.topic}-handlers", concurrency = "2")
    void handle(ConsumerRecord<String, String> order) {
        int attempt = attempts.merge(order.value(), 1, Integer::sum);
        boolean isLate = order.value().startsWith("late") && attempt < ATTEMPTS;
        if (isLate || order.value().startsWith("bad")) {
            throw new IllegalStateException("no stock for " + order.value());
        }
        System.out.println("handled " + order.value() + " at attempt " + attempt);
        left.countDown();
    }

    @DltHandler
    void bury(ConsumerRecord<String, String> order) {
        System.out.println("dead " + order.value() + " after attempt " + attempts.get(order.value()));
        left.countDown();
    }

    private static String order(int number) {
        return (number % 10 == 3 ? "bad " : number % 10 == 7 ? "late " : "good ") + number;
    }

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        left = new CountDownLatch(count);
        SpringApplication application = new SpringApplication(Orders.class);
        application.setDefaultProperties(Map.of(
            "spring.kafka.bootstrap-servers", arguments[0],
            "spring.kafka.consumer.auto-offset-reset", "earliest",
            "spring.main.banner-mode", "off",
            "orders.topic", arguments[1],
            "logging.level.root", "OFF"));
        try (ConfigurableApplicationContext context = application.run()) {
            @SuppressWarnings("unchecked")
            KafkaTemplate<String, String> template = context.getBean(KafkaTemplate.class);
            for (int number = 0; number < count; number++) {
                template.send(arguments[1], "key " + number, order(number)).get(30, TimeUnit.SECONDS);
            }
            if (!left.await(90, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " orders are neither handled nor dead");
            }
        }
    }
}
