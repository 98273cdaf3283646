//! Exercise of rskafka against the brokers named on the command line, with its own topic. It checks every reply, and
//! that it reads what it sent. rskafka has no groups.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use chrono::{TimeZone, Utc};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;

const COUNT: i64 = 1000;
const FIRST_MS: i64 = 1_700_000_000_000;

fn record(number: i64) -> Record {
    Record {
        key: Some(format!("key {number}").into_bytes()),
        value: Some(format!("value {number}").into_bytes()),
        headers: BTreeMap::from([("number".to_owned(), number.to_string().into_bytes())]),
        timestamp: Utc.timestamp_millis_opt(FIRST_MS + number).unwrap(),
    }
}

async fn exercise(brokers: Vec<String>, topic: &str) -> Result<(), Box<dyn Error>> {
    let client = ClientBuilder::new(brokers).build().await?;
    let controller = client.controller_client()?;
    controller.create_topic(topic, 2, 1, 10_000).await?;
    let partition = client.partition_client(topic, 1, UnknownTopicHandling::Retry).await?;

    let codecs = [
        Compression::NoCompression,
        Compression::Gzip,
        Compression::Lz4,
        Compression::Snappy,
        Compression::Zstd,
    ];
    let mut next = 0;
    for codec in codecs {
        let records = (next..next + COUNT).map(record).collect();
        let offsets = partition.produce(records, codec).await?;
        assert_eq!(offsets, (next..next + COUNT).collect::<Vec<_>>());
        next += COUNT;
    }
    assert_eq!(partition.get_offset(OffsetAt::Latest).await?, next);
    #[cfg(feature = "offsets-by-time")]
    assert_eq!(partition.get_offset(OffsetAt::Timestamp(record(1234).timestamp)).await?, 1234);

    let mut offset = 0;
    while offset < next {
        let (records, high_watermark) = partition.fetch_records(offset, 1..1_000_000, 1_000).await?;
        assert_eq!(high_watermark, next);
        for found in records {
            assert_eq!((found.offset, &found.record), (offset, &record(offset)));
            offset += 1;
        }
    }
    partition.delete_records(100, 10_000).await?;
    assert_eq!(partition.get_offset(OffsetAt::Earliest).await?, 100);
    controller.delete_topic(topic, 10_000).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let brokers = arguments[1].split(',').map(str::to_owned).collect();
    tokio::time::timeout(Duration::from_secs(60), exercise(brokers, &arguments[2])).await??;
    println!("done");
    Ok(())
}
