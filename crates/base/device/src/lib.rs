//! A block device in user space that forgets what was not flushed, and counts what reaches it.
