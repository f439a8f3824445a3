"""From files and a model to the arrays of an analysis, and from its result to a table: one file for each."""
