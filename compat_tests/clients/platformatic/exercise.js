// Exercise of @platformatic/kafka against the brokers named on the command line, with its own topic and its own group.
// It checks every reply, and that it reads what it sent: with each codec, idempotent, and in transactions.
import assert from "node:assert";
import {
  Admin,
  Consumer,
  MessagesStreamFallbackModes,
  MessagesStreamModes,
  Producer,
  ProduceAcks,
  stringDeserializers,
  stringSerializers,
} from "@platformatic/kafka";

const PARTITIONS = 3;
const COUNT = 200;
const CODECS = ["none", "gzip", "snappy", "lz4", "zstd"];
const [brokers, topic] = process.argv.slice(2);
const group = `readers-of-${topic}`;
const base = { clientId: "exercise", bootstrapBrokers: brokers.split(",") };

function messages(prefix) {
  return Array.from({ length: COUNT }, (_, number) => ({
    topic,
    key: `key ${number}`,
    value: `${prefix} ${number}`,
    headers: new Map([["number", String(number)]]),
  }));
}

async function produce() {
  const producer = new Producer({ ...base, idempotent: true, acks: ProduceAcks.ALL, serializers: stringSerializers });
  for (const compression of CODECS) {
    const { offsets } = await producer.send({ messages: messages(compression), compression });
    assert.strictEqual(offsets.length, PARTITIONS);
  }
  await producer.close();
}

async function transact() {
  const transactionalId = `${topic} transactions`;
  const producer = new Producer({ ...base, idempotent: true, transactionalId, serializers: stringSerializers });
  for (const [end, prefix] of [["abort", "aborted"], ["commit", "committed"]]) {
    const transaction = await producer.beginTransaction();
    await transaction.send({ messages: messages(prefix) });
    await transaction[end]();
  }
  await producer.close();
}

async function consume(expected) {
  const consumer = new Consumer({ ...base, groupId: group, autocommit: false, deserializers: stringDeserializers });
  const stream = await consumer.consume({
    topics: [topic],
    mode: MessagesStreamModes.COMMITTED,
    fallbackMode: MessagesStreamFallbackModes.EARLIEST,
    maxWaitTime: 500,
  });
  const seen = new Set();
  for await (const message of stream) {
    assert.strictEqual(message.key, `key ${message.headers.get("number")}`);
    assert.ok(!seen.has(message.value), `${message.value} came twice`);
    seen.add(message.value);
    await message.commit();
    if (seen.size === expected.size) break;
  }
  assert.deepStrictEqual(seen, expected);
  await consumer.close(true);
}

async function administer(admin) {
  const [found] = await admin.listConsumerGroupOffsets({
    groups: [{ groupId: group, topics: [{ name: topic, partitionIndexes: [0, 1, 2] }] }],
  });
  assert.ok(found.topics[0].partitions.every(({ committedOffset }) => committedOffset > 0n));
  await admin.deleteGroups({ groups: [group] });
  await admin.deleteTopics({ topics: [topic] });
  assert.ok(!(await admin.listTopics()).includes(topic));
}

const admin = new Admin(base);
await admin.createTopics({ topics: [topic], partitions: PARTITIONS, replicas: -1 });
await produce();
await transact();
const sent = [...CODECS, "committed"].flatMap((prefix) => messages(prefix).map(({ value }) => value));
await consume(new Set(sent));
await administer(admin);
await admin.close();
console.log("done");
