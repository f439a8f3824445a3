"""Tables of one's own: files with a column of text, to rows with labels and to SeqIO tasks."""
