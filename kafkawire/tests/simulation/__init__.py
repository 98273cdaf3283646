"""The whole broker under seeded clients, crashes and failing disks: `python -m kafkawire.tests.simulation --seed N`."""
