// Writer and reader by franz-go, until standard input ends.
// `write BROKER TOPIC PARTITIONS WRITER RECORDS_PER_S` writes numbered values; it prints the events of
// compat_tests/faults/writer_events.py. `read BROKER TOPIC GROUP` reads as the only member of a group; it prints the
// events of compat_tests/features/groups/driver.py.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 60 * time.Second

var telling sync.Mutex

func tell(event any) {
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(string(line))
}

func main() {
	seeds := kgo.SeedBrokers(strings.Split(os.Args[2], ",")...)
	over := make(chan struct{})
	go func() {
		for one := make([]byte, 1); ; {
			if _, err := os.Stdin.Read(one); err != nil {
				close(over)
				return
			}
		}
	}()
	switch topic := os.Args[3]; os.Args[1] {
	case "write":
		write(seeds, topic, number(os.Args[4]), os.Args[5], number(os.Args[6]), over)
	case "read":
		read(seeds, topic, os.Args[4], over)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return value
}

func connect(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(options...)
	if err != nil {
		panic(err)
	}
	return client
}

// The producer is idempotent and retries without end. Its default codec is not known to every reader.
func write(seeds kgo.Opt, topic string, partitions int, name string, perSecond int, over <-chan struct{}) {
	client := connect(seeds, kgo.DefaultProduceTopic(topic), kgo.UnknownTopicRetries(-1),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	defer client.Close()
	pace := time.NewTicker(time.Second / time.Duration(perSecond))
	for next := 0; ; next++ {
		select {
		case <-over:
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := client.Flush(ctx); err != nil {
				tell(map[string]string{"failed": "records are still under way: " + err.Error()})
			}
			tell(map[string]string{"ended": name})
			return
		case <-pace.C:
			value := fmt.Sprintf("%s.%d", name, next)
			record := &kgo.Record{Partition: int32(next % partitions), Value: []byte(value)}
			client.Produce(context.Background(), record, told)
		}
	}
}

func told(record *kgo.Record, err error) {
	if err != nil {
		tell(map[string]string{"failed": fmt.Sprintf("%s: %v", record.Value, err)})
		return
	}
	tell(map[string]any{"acked": []any{record.Partition, record.Offset, string(record.Value)}})
}

// Commits the records of each poll before the next poll.
func read(seeds kgo.Opt, topic, group string, over <-chan struct{}) {
	client := connect(seeds, kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	defer client.Close()
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		<-over
		leave()
	}()
	for {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		for _, failure := range fetches.Errors() {
			tell(map[string]string{"event": "error", "error": failure.Err.Error()})
		}
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		rows := make([][]any, 0, len(records))
		for _, each := range records {
			rows = append(rows, []any{each.Topic, each.Partition, each.Offset, string(each.Value)})
		}
		tell(map[string]any{"event": "records", "records": rows})
		if err := client.CommitRecords(ctx, records...); err != nil && ctx.Err() == nil {
			tell(map[string]string{"event": "commit_failed", "error": err.Error()})
		}
	}
}
