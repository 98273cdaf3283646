"""Quix Streams application that counts words, with its counts in a store that a changelog topic backs.

Arguments: bootstrap servers, input topic, output topic, state directory, number of results after which it stops. The
processing is exactly once: results, changelog and offsets are one transaction.
"""

import sys

from quixstreams import Application, State


def count(word: str, state: State) -> dict[str, int | str]:
    found = state.get("count", 0) + 1
    state.set("count", found)
    return {"word": word, "count": found}


def main() -> None:
    servers, sentences, results, directory, number = sys.argv[1:]
    application = Application(
        broker_address=servers,
        consumer_group=f"{sentences}-counters",
        auto_offset_reset="earliest",
        commit_interval=0.3,
        processing_guarantee="exactly-once",
        state_dir=directory,
        loglevel="WARNING",
    )
    words = application.dataframe(application.topic(sentences, value_deserializer="string"))
    counted = words.apply(lambda sentence: sentence.split(" "), expand=True).group_by(lambda word: word, name="word")
    counted.apply(count, stateful=True).to_topic(application.topic(results, value_serializer="json"))
    application.run(count=int(number), timeout=60)


if __name__ == "__main__":
    main()
