"""Records of Kafka's format v2 as Arrow columns. Pure: no socket, no file, no clock.

    batches   headers, checked with their CRC
    visible   which of them a reader may see
    codecs    their records decompressed, bounded
    decode    what is in them, as rows

What a broker, or whoever wrote a log, may lie about is checked before it is used for anything: a lie is MalformedBatch.
"""
