// Transactional producer by franz-go, with the commands of compat_tests/features/transactions/driver.py. franz-go
// commits offsets in a transaction only for a session that consumes, so `transform` takes the place of `offsets`.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	patience = 20 * time.Second
	pause    = 50 * time.Millisecond
)

type command struct {
	Do        string
	Topic     string
	Partition int32
	Value     string
	Group     string
	Output    string
	Count     int
	Commit    bool
}

type producer struct {
	options []kgo.Opt
	client  *kgo.Client
}

func main() {
	timeout, err := strconv.Atoi(os.Args[3])
	if err != nil {
		panic(err)
	}
	told := &producer{options: []kgo.Opt{
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.TransactionalID(os.Args[2]),
		kgo.TransactionTimeout(time.Duration(timeout) * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			panic(err)
		}
		said := ""
		if err := told.obey(asked); err != nil {
			said = err.Error()
		}
		answer, _ := json.Marshal(map[string]string{"event": "done", "do": asked.Do, "error": said})
		fmt.Println(string(answer))
		if asked.Do == "close" {
			return
		}
	}
}

func (told *producer) obey(asked command) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch asked.Do {
	case "initialise":
		client, err := kgo.NewClient(told.options...)
		if err != nil {
			return err
		}
		told.client = client
		return told.initialise(ctx)
	case "begin":
		return told.client.BeginTransaction()
	case "send":
		record := &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Value: []byte(asked.Value)}
		return told.client.ProduceSync(ctx, record).FirstErr()
	case "commit":
		return told.end(ctx, kgo.TryCommit)
	case "abort":
		return told.end(ctx, kgo.TryAbort)
	case "transform":
		return told.transform(ctx, asked)
	case "close":
		if told.client != nil {
			told.client.Close()
		}
		return nil
	}
	return fmt.Errorf("unknown: %s", asked.Do)
}

// Apache Kafka answers with an error while it aborts the transaction of an earlier producer, and franz-go does not retry.
func (told *producer) initialise(ctx context.Context) error {
	for {
		_, _, err := told.client.ProducerID(ctx)
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			return err
		}
		time.Sleep(pause)
	}
}

func (told *producer) end(ctx context.Context, how kgo.TransactionEndTry) error {
	if err := told.client.Flush(ctx); err != nil {
		return err
	}
	return told.client.EndTransaction(ctx, how)
}

// Reads a number of records as a member of the group, writes each to the output topic, and ends the transaction.
func (told *producer) transform(ctx context.Context, asked command) error {
	session, err := kgo.NewGroupTransactSession(append(told.options,
		kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Begin(); err != nil {
		return err
	}
	for seen := 0; seen < asked.Count; {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("after %d records: %w", seen, err)
		}
		for _, record := range fetches.Records() {
			session.Produce(ctx, &kgo.Record{Topic: asked.Output, Value: record.Value}, nil)
			seen++
		}
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(asked.Commit))
	if err == nil && committed != asked.Commit {
		err = fmt.Errorf("committed: %v", committed)
	}
	return err
}
