"""An exhaustive model of replication: the machines that brokers run, in every order of what may happen to them."""
