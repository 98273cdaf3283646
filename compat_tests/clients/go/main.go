// Exercise of franz-go against the brokers named on the command line, with its own topic and its own group. It checks
// every reply, and that it reads what it sent. The program stops at the first difference and prints it on standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3
	count      = 1000
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := exercise(ctx, strings.Split(os.Args[1], ","), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func exercise(ctx context.Context, brokers []string, topic string) error {
	client, err := kgo.NewClient(append(security(), kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic))...)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	created, err := admin.CreateTopics(ctx, partitions, 1, map[string]*string{"retention.ms": kadm.StringPtr("-1")}, topic)
	if err == nil {
		err = created[topic].Err
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for _, codec := range []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	} {
		if err := produce(ctx, brokers, topic, codec); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	if err := consume(ctx, brokers, topic, 5*count); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	return administer(ctx, admin, topic, 5*count)
}

// The producer is idempotent, franz-go's default.
func produce(ctx context.Context, brokers []string, topic string, codec kgo.CompressionCodec) error {
	client, err := kgo.NewClient(append(security(),
		kgo.SeedBrokers(brokers...), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = &kgo.Record{
			Key:     []byte(fmt.Sprintf("key %d", number)),
			Value:   []byte(fmt.Sprintf("value %d", number)),
			Headers: []kgo.RecordHeader{{Key: "number", Value: []byte(fmt.Sprint(number))}},
		}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// Reads as the only member of a group, and commits.
func consume(ctx context.Context, brokers []string, topic string, expected int) error {
	client, err := kgo.NewClient(append(security(),
		kgo.SeedBrokers(brokers...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group(topic)),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
	)...)
	if err != nil {
		return err
	}
	defer client.Close()
	seen := 0
	for seen < expected {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records: %w", seen, err)
		}
		for _, record := range fetches.Records() {
			number := string(record.Headers[0].Value)
			if string(record.Key) != "key "+number || string(record.Value) != "value "+number {
				return fmt.Errorf("%s=%s with number %s", record.Key, record.Value, number)
			}
			seen++
		}
	}
	if seen != expected {
		return fmt.Errorf("%d records, not %d", seen, expected)
	}
	return client.CommitUncommittedOffsets(ctx)
}

func administer(ctx context.Context, admin *kadm.Client, topic string, expected int64) error {
	details, err := admin.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("list topics: %w", err)
	}
	if found := len(details[topic].Partitions); found != partitions {
		return fmt.Errorf("%d partitions", found)
	}
	committed, err := admin.FetchOffsets(ctx, group(topic))
	if err != nil {
		return fmt.Errorf("committed offsets: %w", err)
	}
	ends, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("end offsets: %w", err)
	}
	total, read := int64(0), int64(0)
	ends.Each(func(offset kadm.ListedOffset) { total += offset.Offset })
	committed.Each(func(offset kadm.OffsetResponse) { read += offset.At })
	if read != expected {
		return fmt.Errorf("committed offsets add up to %d", read)
	}
	if total != expected {
		return fmt.Errorf("end offsets add up to %d", total)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	if err == nil {
		err = configs[0].Err
	}
	if err != nil {
		return fmt.Errorf("configs: %w", err)
	}
	retention := ""
	for _, config := range configs[0].Configs {
		if config.Key == "retention.ms" && config.Value != nil {
			retention = *config.Value
		}
	}
	if retention != "-1" {
		return fmt.Errorf("retention.ms is %q", retention)
	}
	if groups, err := admin.DeleteGroups(ctx, group(topic)); err != nil || groups[group(topic)].Err != nil {
		return fmt.Errorf("delete group: %w, %w", err, groups[group(topic)].Err)
	}
	topics, err := admin.DeleteTopics(ctx, topic)
	if err != nil {
		return err
	}
	return topics[topic].Err
}

func group(topic string) string { return "readers of " + topic }
