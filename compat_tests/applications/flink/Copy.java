// Flink job that copies a topic exactly once: a failure in the middle, and a savepoint from which the next run goes on.
// Arguments: bootstrap servers, input topic, output topic, directory for checkpoints, naming of transactional ids,
// and the savepoint of an earlier run.
// The job fails once after its second checkpoint. A line on standard input stops it with a savepoint, which is printed.

import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.CheckpointingMode;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Copy {
    private static volatile boolean hasFailed;

    /** Passes each record on. Fails once, behind the second checkpoint. */
    public static class Failing extends RichMapFunction<String, String> implements CheckpointListener {
        private int checkpoints;

        @Override
        public String map(String value) {
            if (checkpoints >= 2 && !hasFailed) {
                hasFailed = true;
                System.out.println("failed");
                throw new IllegalStateException("the failure that the test asks for");
            }
            return value;
        }

        @Override
        public void notifyCheckpointComplete(long number) {
            checkpoints++;
        }
    }

    private static StreamExecutionEnvironment environment(String directory, String savepoint) {
        Configuration settings = new Configuration();
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, "file://" + directory + "/checkpoints");
        if (savepoint != null) {
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, savepoint);
        }
        StreamExecutionEnvironment found = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        found.setParallelism(2);
        found.enableCheckpointing(300, CheckpointingMode.EXACTLY_ONCE);
        return found;
    }

    private static JobClient start(StreamExecutionEnvironment environment, String[] arguments) throws Exception {
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[1])
            .setGroupId(arguments[1] + "-copiers")
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(arguments[2])
            .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(arguments[4]))
            .setProperty("transaction.timeout.ms", "60000")
            .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                .setTopic(arguments[2])
                .setValueSerializationSchema(new SimpleStringSchema())
                .build())
            .build();
        environment.fromSource(source, WatermarkStrategy.noWatermarks(), "source").uid("source")
            .map(new Failing()).uid("failing")
            .sinkTo(sink).uid("sink");
        return environment.executeAsync("copy");
    }

    public static void main(String[] arguments) throws Exception {
        String savepoint = arguments.length > 5 ? arguments[5] : null;
        hasFailed = savepoint != null;  // the second run does not fail
        JobClient job = start(environment(arguments[3], savepoint), arguments);
        while (System.in.read() != '\n') {
        }
        System.out.println("savepoint " + job.stopWithSavepoint(
            false, "file://" + arguments[3] + "/savepoints", SavepointFormatType.CANONICAL).get(60, TimeUnit.SECONDS));
        JobStatus status = job.getJobStatus().handle((found, gone) -> gone == null ? found : JobStatus.FINISHED).get();
        System.exit(status == JobStatus.FINISHED ? 0 : 1);
    }
}
