// Exercise of kafkajs against the brokers named on the command line, with its own topic and its own group. It checks
// every reply, and that it reads what it sent.
"use strict";

const assert = require("node:assert");
const fs = require("node:fs");
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const PARTITIONS = 3;
const COUNT = 1000;
const [brokers, topic, ...files] = process.argv.slice(2);
const group = `readers of ${topic}`;
// With TLS, if the command line names files: those of the authority, of the client's certificate and its key.
const [ca, cert, key] = files.map((file) => fs.readFileSync(file));
const ssl = files.length ? { ca: [ca], cert, key } : false;
const kafka = new Kafka({ clientId: "exercise", brokers: brokers.split(","), logLevel: logLevel.ERROR, ssl });

async function produce(compression, idempotent) {
  const producer = kafka.producer({ idempotent });
  await producer.connect();
  const messages = Array.from({ length: COUNT }, (_, number) => ({
    key: `key ${number}`,
    value: `value ${number}`,
    headers: { number: String(number) },
  }));
  const answers = await producer.send({ topic, messages, compression, acks: -1 });
  assert.ok(answers.every((answer) => answer.errorCode === 0));
  await producer.disconnect();
}

async function consume(expected) {
  const consumer = kafka.consumer({ groupId: group });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    consumer
      .run({
        eachMessage: async ({ message }) => {
          const number = message.headers.number.toString();
          if (message.key.toString() !== `key ${number}` || message.value.toString() !== `value ${number}`) {
            reject(new Error(`${message.key}=${message.value} with number ${number}`));
          }
          seen += 1;
          if (seen === expected) resolve();
        },
      })
      .catch(reject);
  });
  await consumer.disconnect(); // commits
}

async function administer(admin, expected) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  assert.strictEqual(topics[0].partitions.length, PARTITIONS);
  const ends = await admin.fetchTopicOffsets(topic);
  const end = ends.reduce((sum, one) => sum + Number(one.high), 0);
  assert.strictEqual(end, expected);
  const [committed] = await admin.fetchOffsets({ groupId: group, topics: [topic] });
  const read = committed.partitions.reduce((sum, one) => sum + Number(one.offset), 0);
  assert.strictEqual(read, expected);
  const { resources } = await admin.describeConfigs({
    includeSynonyms: false,
    resources: [{ type: 2, name: topic, configNames: ["retention.ms"] }],
  });
  assert.strictEqual(resources[0].configEntries[0].configValue, "-1");
  await admin.deleteGroups([group]);
  await admin.deleteTopics({ topics: [topic] });
}

async function exercise() {
  const admin = kafka.admin();
  await admin.connect();
  const configEntries = [{ name: "retention.ms", value: "-1" }];
  assert.ok(await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, configEntries }] }));
  await produce(CompressionTypes.None, false);
  await produce(CompressionTypes.GZIP, true);
  await consume(2 * COUNT);
  await administer(admin, 2 * COUNT);
  await admin.disconnect();
  console.log("done");
}

exercise().catch((error) => {
  console.error(error);
  process.exit(1);
});
