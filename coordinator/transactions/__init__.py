"""Transaction coordinators: transactional ids, their transitions, markers and producer ids."""
