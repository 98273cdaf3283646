"""From a frame to its reply: headers, dispatch, what a handler is given, errors."""
