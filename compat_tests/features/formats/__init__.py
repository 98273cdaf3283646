"""Data dirs of earlier versions, opened by this one: `make_data_dirs` makes them, the tests read them."""
