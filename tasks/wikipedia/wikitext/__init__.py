"""The steps of cleaning, one kind of markup each; `tasks.wikipedia.cleaning` says in which order.

Over a whole article: `elements`, `links` and `brackets`, `variants`, `lines`. Within a line: `templates`, `inline`,
`tidying`. What differs between editions: `namespaces`, `headings`, and the tables in `templates`.
"""
