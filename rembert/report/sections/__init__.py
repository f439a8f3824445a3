"""Parts of the page: each file makes one section of what was read, and makes an empty one where there is nothing."""
