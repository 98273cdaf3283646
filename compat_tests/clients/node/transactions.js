// Transactional producer by kafkajs, with the commands of compat_tests/features/transactions/driver.py.
"use strict";

const readline = require("node:readline");
const { Kafka, logLevel } = require("kafkajs");

const [brokers, transactionalId, timeout] = process.argv.slice(2);
const kafka = new Kafka({ clientId: "transactions", brokers: brokers.split(","), logLevel: logLevel.NOTHING });
const producer = kafka.producer({
  transactionalId,
  transactionTimeout: Number(timeout),
  idempotent: true,
  maxInFlightRequests: 1,
  retry: { retries: 5 },
});
let transaction;
let isFresh = false;

const TASKS = {
  // kafkajs initializes its producer id when the first transaction begins.
  initialise: async () => {
    await producer.connect();
    transaction = await producer.transaction();
    isFresh = true;
  },
  begin: async () => {
    if (!isFresh) transaction = await producer.transaction();
    isFresh = false;
  },
  send: ({ topic, partition, value }) => transaction.send({ topic, acks: -1, messages: [{ partition, value }] }),
  offsets: ({ group, topic, partition, offset }) =>
    transaction.sendOffsets({
      consumerGroupId: group,
      topics: [{ topic, partitions: [{ partition, offset: String(offset) }] }],
    }),
  commit: () => transaction.commit(),
  abort: () => transaction.abort(),
  close: () => producer.disconnect(),
};

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let error = "";
    try {
      await TASKS[command.do](command);
    } catch (raised) {
      error = `${raised.type || raised.name}: ${raised.message}`;
    }
    console.log(JSON.stringify({ event: "done", do: command.do, error }));
    if (command.do === "close") process.exit(0);
  }
}

serve();
