import io.smallrye.mutiny.Uni;
import io.smallrye.reactive.messaging.kafka.KafkaRecordBatch;
import io.smallrye.reactive.messaging.kafka.transactions.KafkaTransactions;
import jakarta.enterprise.context.ApplicationScoped;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Outgoing;

/** Application of two stages: orders are checked, then booked in transactions together with their offsets. */
@ApplicationScoped
public class Orders {
    @Channel("booked")
    KafkaTransactions<String> bookings;

    /** Pass an order on; an order that says "bad" fails, and goes to the dead-letter topic. */
    @Incoming("orders")
    @Outgoing("checked")
    public String check(String order) {
        if (order.startsWith("bad")) {
            throw new IllegalArgumentException("no stock for " + order);
        }
        return order;
    }

    /** Book a batch of checked orders, in one transaction. */
    @Incoming("checks")
    public Uni<Void> book(KafkaRecordBatch<String, String> orders) {
        return bookings.withTransactionAndAck(orders, emitter -> {
            for (String order : orders.getPayload()) {
                emitter.send("booked " + order);
            }
            return Uni.createFrom().voidItem();
        });
    }
}
