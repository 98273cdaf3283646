"""Tables that a job appends to, exactly once: Parquet files that tasks have written, and the progress of the job.

    api         interface of a table, whatever its format
    facts       facts about written files, from tasks: pure
    schemas     check whether rows of one schema fit another: pure
    places      folders of data files, in file systems
    positions   progress as JSON: pure
    appending   outcome of a commit that was refused or not answered
    delta       Delta, by deltalake
    iceberg     Iceberg, by pyiceberg, in any of its catalogs
    parquet     a local directory
    puts        atomic operations on files, for `parquet`

There are no locks: files and progress are committed together, and only if no other run of the job has committed
meanwhile. So crashes, and several runs at once, do no harm.
"""
