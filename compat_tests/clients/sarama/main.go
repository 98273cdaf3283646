// Exercise of sarama against the brokers named on the command line, with its own topic and its own group. It checks every
// reply, that it reads what it sent, and that offsets are found by the times of records. The program stops at the first
// difference and prints it on standard error.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const count = 100 // records of each codec

var codecs = []sarama.CompressionCodec{
	sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
}

func main() {
	if err := exercise(strings.Split(os.Args[1], ","), os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func exercise(brokers []string, topic string) error {
	admin, err := sarama.NewClusterAdmin(brokers, configuration())
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	first := time.Now().Add(-time.Hour).Truncate(time.Second)
	for number, codec := range codecs {
		if err := produce(brokers, topic, codec, first.Add(time.Duration(number)*time.Minute)); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
	if err := search(brokers, topic, first); err != nil {
		return fmt.Errorf("search: %w", err)
	}
	if err := consume(brokers, topic); err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	details, err := admin.DescribeTopics([]string{topic})
	if err != nil || len(details[0].Partitions) != 1 {
		return fmt.Errorf("describe: %v, %w", details, err)
	}
	if err := admin.DeleteConsumerGroup(group(topic)); err != nil {
		return fmt.Errorf("delete group: %w", err)
	}
	return admin.DeleteTopic(topic)
}

func configuration() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_1_0_0 // the first one with zstd
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	secure(config)
	return config
}

// The producer is idempotent. A record has a time of its own, a second behind the one before it.
func produce(brokers []string, topic string, codec sarama.CompressionCodec, first time.Time) error {
	config := configuration()
	config.Producer.Compression = codec
	config.Producer.Idempotent = true
	config.Producer.Retry.Max = 50 // 5 s: a topic was just created, and brokers that are busy learn of it later
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		return err
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		messages[number] = &sarama.ProducerMessage{
			Topic:     topic,
			Key:       sarama.StringEncoder(fmt.Sprintf("key %d", number)),
			Value:     sarama.StringEncoder(fmt.Sprintf("value %d", number)),
			Headers:   []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(fmt.Sprint(number))}},
			Timestamp: first.Add(time.Duration(number) * 100 * time.Millisecond),
		}
	}
	err = producer.SendMessages(messages)
	var failed sarama.ProducerErrors
	if errors.As(err, &failed) {
		return fmt.Errorf("%w The first: %w", err, failed[0].Err)
	}
	return err
}

// Finds offsets by the times of records. sarama up to 1.45.0 writes no greatest time into the header of a batch.
func search(brokers []string, topic string, first time.Time) error {
	client, err := sarama.NewClient(brokers, configuration())
	if err != nil {
		return err
	}
	defer client.Close()
	for number := range codecs {
		for _, behind := range []int{0, 1, count - 1} {
			wanted := first.Add(time.Duration(number)*time.Minute + time.Duration(behind)*100*time.Millisecond)
			found, err := client.GetOffset(topic, 0, wanted.UnixNano()/int64(time.Millisecond))
			if err != nil {
				return err
			}
			if expected := int64(number*count + behind); found != expected {
				return fmt.Errorf("offset %d at %s, not %d", found, wanted, expected)
			}
		}
	}
	return nil
}

// Reads as the only member of a group, and commits.
func consume(brokers []string, topic string) error {
	members, err := sarama.NewConsumerGroup(brokers, group(topic), configuration())
	if err != nil {
		return err
	}
	defer members.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	reader := &reader{expected: len(codecs) * count, done: cancel}
	if err := members.Consume(ctx, []string{topic}, reader); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if reader.problem != nil {
		return reader.problem
	}
	if reader.seen != reader.expected {
		return fmt.Errorf("%d records, not %d", reader.seen, reader.expected)
	}
	return nil
}

type reader struct {
	expected, seen int
	problem        error
	done           func()
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		number := string(message.Headers[0].Value)
		if string(message.Key) != "key "+number || string(message.Value) != "value "+number {
			r.problem = fmt.Errorf("%s=%s with number %s", message.Key, message.Value, number)
			r.done()
			return r.problem
		}
		session.MarkMessage(message, "")
		r.seen++
		if r.seen == r.expected {
			r.done()
		}
	}
	return nil
}

func group(topic string) string { return "readers of " + topic }
