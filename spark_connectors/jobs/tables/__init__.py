"""Tables that a job appends to, exactly once: Parquet files that tasks have written, and up to where they hold a topic.

    api         what a job asks of a table, whatever its format
    facts       what tasks tell of the files that they have written: pure
    schemas     whether rows of one schema are rows of another: pure
    places      folders of data files, in file systems
    positions   progress as JSON: pure
    appending   a commit that was refused, or was not answered: what became of it
    delta       Delta, by deltalake
    iceberg     Iceberg, by pyiceberg, in any of its catalogs
    parquet     a local directory
    puts        what `parquet` does to files, and survives

Nothing is locked, and nobody has to be alive: files and progress are committed together, and only if nobody else of the
job has committed meanwhile. So it does not matter who dies when, or how many try.
"""
