"""Three broker processes on a real ZooKeeper: lost disks, growth, failures, and different versions in one cluster."""
