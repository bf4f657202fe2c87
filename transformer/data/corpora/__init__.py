"""Where texts come from: the settings of corpora, and readers of every format."""
