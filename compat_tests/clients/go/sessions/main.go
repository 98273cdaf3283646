// Sessions of franz-go whose requests are recorded: see compat_tests/clients/frames/sessions.py.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	many   = 40
	rounds = 10
)

var topics = []string{"events", "orders", "payments"}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	if err := play(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func play(ctx context.Context, broker string) error {
	for _, options := range [][]kgo.Opt{
		{},
		{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck())},
		{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.NoAck())},
		{kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(50 * time.Millisecond)},
		{kgo.ProducerBatchCompression(kgo.ZstdCompression())},
	} {
		if err := produce(ctx, broker, options); err != nil {
			return err
		}
	}
	group := []kgo.Opt{
		kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("events", "orders"),
		kgo.HeartbeatInterval(300 * time.Millisecond), kgo.SessionTimeout(6 * time.Second),
		kgo.AutoCommitInterval(500 * time.Millisecond),
	}
	if err := read(ctx, broker, "orders", group); err != nil {
		return err
	}
	assigned := map[int32]kgo.Offset{}
	for partition := int32(0); partition < 12; partition++ {
		assigned[partition] = kgo.NewOffset().AtStart()
	}
	return read(ctx, broker, "payments", []kgo.Opt{
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"payments": assigned}),
	})
}

func produce(ctx context.Context, broker string, options []kgo.Opt) error {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(broker))...)
	if err != nil {
		return err
	}
	defer client.Close()
	one := &kgo.Record{Topic: "events", Value: []byte("v")}
	if err := client.ProduceSync(ctx, one).FirstErr(); err != nil {
		return err
	}
	var records []*kgo.Record
	for number := 0; number < many; number++ {
		for _, topic := range topics {
			records = append(records, &kgo.Record{Topic: topic, Key: []byte(fmt.Sprint(number)), Value: []byte("v")})
		}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

func read(ctx context.Context, broker, topic string, options []kgo.Opt) error {
	options = append(options,
		kgo.SeedBrokers(broker), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(topic),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	for round := 0; round < rounds; round++ {
		if err := client.ProduceSync(ctx, &kgo.Record{Value: []byte("v")}).FirstErr(); err != nil {
			return err
		}
		turn, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
		for turn.Err() == nil {
			client.PollFetches(turn)
		}
		cancel()
		if round == rounds/2 && topic == "payments" {
			client.PauseFetchPartitions(map[string][]int32{topic: {0, 1, 2, 3}})
		}
	}
	if topic == "payments" {
		return nil
	}
	return client.CommitUncommittedOffsets(ctx)
}
