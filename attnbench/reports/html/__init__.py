"""One page that holds a report: sentences, a table, charts, and how it was measured."""
