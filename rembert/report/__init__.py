"""Tables and pictures from what runs leave behind."""
