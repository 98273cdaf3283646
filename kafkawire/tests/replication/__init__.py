"""An exhaustive model of replication: the machines that brokers run, in every possible order of events."""
