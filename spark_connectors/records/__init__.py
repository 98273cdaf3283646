"""Records of Kafka's format v2 as Arrow columns, and back: bytes in, columns out, without a Python object a record.

Pure: no socket, no file, no clock. Where the bytes come from (a Fetch, a file, an object) is somebody else's part. From
the bytes to the rows:

    batches   headers, checked with their CRC            one Python object a batch
    visible   which of them a reader may see             transactions that were aborted are left out
    codecs    their records decompressed, bounded
    starts    where each record begins                   in lockstep over many batches, or one after the other
    fields    where its key and value lie, its numbers   numpy over all records of a group
    headers   the same for what hangs on a record
    columns   Arrow arrays of them                       one `take` a column copies what is wanted
    decode    all of this in groups, out in slices

A record says of itself how long it is, so each one's beginning is known only after the one before: that part alone is
sequential. Everything else is done for tens of thousands of records at a time. The format: Kafka's DefaultRecordBatch
and DefaultRecord; what a broker, or whoever wrote a log, may lie about is checked before it is used for anything, and a
lie is `MalformedBatch`.

And back: `partitioner` tells which partition a row goes to, and `encode` makes batches of rows, with `varints`.
"""
