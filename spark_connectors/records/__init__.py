"""Records of Kafka's format v2 as Arrow columns, and back, without a Python object for each record.

Pure: no socket, no file, no clock. Other parts get the bytes (from a Fetch, a file, an object). From bytes to rows:

    batches   headers, with a check of their CRCs       one Python object for each batch
    visible   the batches that a reader may see         aborted transactions are left out
    codecs    decompression of records, with limits
    starts    positions of records                      in lockstep over many batches, or one after the other
    fields    positions of keys and values, numbers     numpy over all records of a group
    headers   the same for headers of records
    columns   Arrow arrays of them                      one `take` for each column copies the bytes
    decode    all of this in groups, with rows in slices

The length of a record is at its beginning, so a record is found only after the one before: this part alone is
sequential. All other work is done for tens of thousands of records at once. The format is that of Kafka's
DefaultRecordBatch and DefaultRecord. Each number is checked before it is used; a wrong one is a `MalformedBatch`.

And back: `partitioner` chooses the partition of a row, and `encode` makes batches of rows, with `varints`.
"""
