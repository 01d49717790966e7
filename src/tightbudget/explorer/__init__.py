"""Questions and answers for a page, with limits of time and memory."""
