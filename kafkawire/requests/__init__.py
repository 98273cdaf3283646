"""Requests from frame to reply: headers, dispatch, interfaces for handlers, errors."""
