"""What every request passes, as extension modules: they do what their sources do."""
