// Producers that commit one transaction after the other, each to a partition of its own, by Java's client.
//
// Arguments: broker, topic, producers, transactions of each before and while it is measured, records of each transaction,
// size of a record, share of transactions that are aborted. Prints a JSON document.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class TransactionLoad {
    static String bootstrap;
    static String topic;
    static int warming;
    static int measured;
    static int records;
    static byte[] value;
    static double abortedShare;
    static final AtomicInteger failed = new AtomicInteger();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        int producers = Integer.parseInt(arguments[2]);
        warming = Integer.parseInt(arguments[3]);
        measured = Integer.parseInt(arguments[4]);
        records = Integer.parseInt(arguments[5]);
        value = new byte[Integer.parseInt(arguments[6])];
        abortedShare = Double.parseDouble(arguments[7]);
        CyclicBarrier together = new CyclicBarrier(producers + 1);
        ExecutorService threads = Executors.newFixedThreadPool(producers);
        List<Future<long[]>> running = new ArrayList<>();
        for (int number = 0; number < producers; number++) {
            running.add(threads.submit(load(number, together)));
        }
        together.await();
        System.out.println("{\"event\": \"warm\"}");
        System.in.read();  // whoever measures is ready
        together.await();
        long begun = System.nanoTime();
        together.await();
        double seconds = (System.nanoTime() - begun) / 1e9;
        System.out.println("{\"event\": \"measured\", \"seconds\": " + seconds + "}");
        long[] latencies = new long[producers * measured];
        for (int number = 0; number < producers; number++) {
            System.arraycopy(running.get(number).get(), 0, latencies, number * measured, measured);
        }
        threads.shutdown();
        Arrays.sort(latencies);
        System.out.printf("{\"event\": \"done\", \"p50_ms\": %.3f, \"p99_ms\": %.3f, \"failed\": %d}%n",
            latencies[latencies.length / 2] / 1e6, latencies[latencies.length * 99 / 100] / 1e6, failed.get());
    }

    static Callable<long[]> load(int number, CyclicBarrier together) {
        return () -> {
            try (Transactor transactor = new Transactor(number)) {
                for (int count = 0; count < warming; count++) {
                    transactor.transact();
                }
                together.await();
                together.await();
                long[] latencies = new long[measured];
                for (int count = 0; count < measured; count++) {
                    long begun = System.nanoTime();
                    transactor.transact();
                    latencies[count] = System.nanoTime() - begun;
                }
                together.await();
                return latencies;
            } catch (Throwable error) {
                error.printStackTrace();
                System.exit(1);  // the others wait for it
                throw error;
            }
        };
    }

    // One producer, and the next one when it has failed: Apache Kafka 4.3.1 tells its own client INVALID_TXN_STATE at
    // times.
    static class Transactor implements AutoCloseable {
        final int partition;
        final Random choice;
        KafkaProducer<byte[], byte[]> producer;

        Transactor(int number) {
            partition = number;
            choice = new Random(number);
            begin();
        }

        void begin() {
            producer = new KafkaProducer<>(Map.of(
                "bootstrap.servers", bootstrap,
                "transactional.id", topic + "-" + partition,
                "transaction.timeout.ms", "60000"), new ByteArraySerializer(), new ByteArraySerializer());
            producer.initTransactions();
        }

        void transact() {
            while (true) {
                try {
                    attempt();
                    return;
                } catch (KafkaException error) {
                    System.err.println(error);
                    failed.incrementAndGet();
                    producer.close(Duration.ZERO);
                    begin();
                }
            }
        }

        void attempt() {
            producer.beginTransaction();
            for (int count = 0; count < records; count++) {
                producer.send(new ProducerRecord<>(topic, partition, null, value));
            }
            if (choice.nextDouble() < abortedShare) {
                producer.flush();  // an abort would drop what has not left
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }

        @Override
        public void close() {
            producer.close();
        }
    }
}
