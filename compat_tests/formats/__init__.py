"""Data dirs that earlier versions left behind, opened by this one: `make_data_dirs` makes them, the tests read them."""
