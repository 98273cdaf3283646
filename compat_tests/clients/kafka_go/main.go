// Exercise of kafka-go against the brokers named on the command line, with its own topic and its own group. It checks that
// it reads what it sent, and that offsets are found by the times of records. The program stops at the first difference and
// prints it on standard error.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const count = 100 // records of each codec

var codecs = []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	if err := exercise(ctx, strings.Split(os.Args[1], ","), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func exercise(ctx context.Context, brokers []string, topic string) error {
	client := &kafka.Client{Addr: kafka.TCP(brokers...)}
	created, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{
		Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: 1, ReplicationFactor: 1}},
	})
	if err == nil {
		err = created.Errors[topic]
	}
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	first := time.Now().Add(-time.Hour).Truncate(time.Second)
	for number, codec := range codecs {
		if err := produce(ctx, brokers, topic, codec, first.Add(time.Duration(number)*time.Minute)); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	if err := search(ctx, client, topic, first); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	if err := consume(ctx, brokers, topic); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	committed, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group(topic), Topics: map[string][]int{topic: {0}},
	})
	if err != nil {
		return fmt.Errorf("committed offsets: %w", err)
	}
	if found := committed.Topics[topic][0].CommittedOffset; found != int64(len(codecs)*count) {
		return fmt.Errorf("committed offset %d", found)
	}
	deleted, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{topic}})
	if err != nil {
		return err
	}
	return deleted.Errors[topic]
}

// A record has a time of its own, 100 ms behind the one before it.
func produce(ctx context.Context, brokers []string, topic string, codec kafka.Compression, first time.Time) error {
	writer := &kafka.Writer{
		Addr: kafka.TCP(brokers...), Topic: topic, Compression: codec, BatchSize: count, RequiredAcks: kafka.RequireAll,
	}
	defer writer.Close()
	messages := make([]kafka.Message, count)
	for number := range messages {
		messages[number] = kafka.Message{
			Key:     []byte(fmt.Sprintf("key %d", number)),
			Value:   []byte(fmt.Sprintf("value %d", number)),
			Headers: []kafka.Header{{Key: "number", Value: []byte(fmt.Sprint(number))}},
			Time:    first.Add(time.Duration(number) * 100 * time.Millisecond),
		}
	}
	return writer.WriteMessages(ctx, messages...)
}

func search(ctx context.Context, client *kafka.Client, topic string, first time.Time) error {
	for number := range codecs {
		wanted := first.Add(time.Duration(number)*time.Minute + 5*time.Second)
		found, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {kafka.TimeOffsetOf(0, wanted)}},
		})
		if err != nil {
			return err
		}
		for offset := range found.Topics[topic][0].Offsets {
			if expected := int64(number*count + 50); offset != expected {
				return fmt.Errorf("offset %d at %s, not %d", offset, wanted, expected)
			}
		}
	}
	return nil
}

// Reads as the only member of a group, and commits.
func consume(ctx context.Context, brokers []string, topic string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: brokers, GroupID: group(topic), Topic: topic, StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond,
	})
	defer reader.Close()
	for seen := 0; seen < len(codecs)*count; seen++ {
		message, err := reader.ReadMessage(ctx)
		if err != nil {
			return fmt.Errorf("after %d records: %w", seen, err)
		}
		number := string(message.Headers[0].Value)
		if string(message.Key) != "key "+number || string(message.Value) != "value "+number {
			return fmt.Errorf("%s=%s with number %s", message.Key, message.Value, number)
		}
	}
	return nil
}

func group(topic string) string { return "readers of " + topic }
