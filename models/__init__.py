"""The nano models, which travel with the wheel: `manners serve` finds them beside the program wherever it is
installed. Nothing is imported from here."""
