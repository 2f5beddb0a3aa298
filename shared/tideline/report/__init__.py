"""The report of a result: charts as values, their pictures, and one page that needs no network."""
